"""The commands under which a damaged file is tried: FILE is the file, GOOD a whole capture, OUT.x an output."""

from random import Random

ANY = (  # of captures and of tables
    "prof FILE", "prof FILE --summary", "prof FILE --summary", "prof FILE --advise", "prof FILE --csv -c all",
    "prof FILE --json", "prof FILE --summary --json", "prof FILE --jsonl", "prof FILE --explain 1",
    "prof FILE --group op,dir --sort -time", "prof FILE --where sil>1 -o OUT.csv --csv", "report FILE -o OUT.html",
    "perfetto FILE -o OUT.pftrace", "perfetto FILE -o OUT.json", "diff FILE FILE", "diff GOOD FILE --json",
    "diff FILE GOOD --html OUT.html", "trend GOOD FILE", "memory FILE", "memory FILE --csv", "replay FILE",
    "replay FILE -o OUT.pftrace --json", "plan FILE", "plan FILE --json", "prof FILE --advise --json",
)  # fmt: skip
CAPTURE = (
    "parse FILE -o OUT.dict", "parse FILE -o OUT.parquet", "parse FILE -o OUT.pyprof", "parse FILE -o OUT.csv",
    "parse FILE --summary", "parse FILE --summary --exact --json", "parse FILE --step 3 -o OUT.dict",
    "parse FILE --range Prof* --from 1us -o OUT.dict", "parse GOOD --graphs FILE -o OUT.dict",
    "parse FILE GOOD -o OUT.dict",
    "stats FILE", "stats FILE -r all -f csv", "stats FILE --json", "prof GOOD --graphs FILE --summary",
    "memory FILE --json", "memory FILE -o OUT.txt", "scrub FILE -o OUT.copy", "scrub FILE -o OUT.gz --json",
)  # fmt: skip
DRAWN = ("plot roofline FILE -o OUT.svg", "plot layers FILE -o OUT.png", "plot timeline FILE -o OUT.png",
         "plot phases FILE -o OUT.png")  # fmt: skip
JOB = ("ranks FILE GOOD -o OUT.job --workers 1",)
OF_KIND = {
    "ncu": ("ncu FILE", "scrub FILE -o OUT.copy", "ncu FILE --json", "ncu FILE --csv -o OUT.csv",
            "prof GOOD --ncu FILE", "prof GOOD --ncu FILE --json",
            "report GOOD --ncu FILE -o OUT.html"),
    "peaks": ("prof GOOD --peaks FILE", "prof GOOD --peaks FILE --summary", "plot growth FILE -o OUT.svg",
              "report GOOD --peaks FILE -o OUT.html", "plan GOOD --peaks FILE"),
    "timings": ("plan GOOD --timings FILE", "prof GOOD --advise --timings FILE", "plan GOOD --timings FILE --json"),
    "snapshot": ("scrub FILE -o OUT.pickle", "memory FILE", "memory FILE --json", "memory FILE --csv -o OUT.csv",
                 "parse FILE -o OUT.pyprof",
                 "prof FILE", "report FILE -o OUT.html", "perfetto FILE -o OUT.pftrace"),
}  # fmt: skip
TABLES = ("netdict", "parquet", "container")
SCRUBBED = {"netdict": "OUT.dict", "parquet": "OUT.parquet", "container": "OUT.pyprof"}


def command(kind: str, random: Random) -> list[str]:
    """The words of a command for a file of this kind."""
    if kind in OF_KIND:
        return random.choice(OF_KIND[kind]).split()
    roll = random.random()
    if roll < 0.02:
        return random.choice(JOB if kind not in TABLES else DRAWN).split()
    if roll < 0.06:
        return random.choice(DRAWN).split()
    if roll < 0.09 and kind in TABLES:
        return ["scrub", "FILE", "-o", SCRUBBED[kind]]
    return random.choice(ANY if kind in TABLES or roll < 0.4 else CAPTURE).split()
