"""The command pyprof try: a script as it is and with changes that are applied from outside, each run timed."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyprof.command.argument_types import number, whole_number
from pyprof.command.envelope import fail, write_answer
from pyprof.command.frame import Done, run_command
from pyprof.command.parser import LinesAsWritten, add_common, add_json
from pyprof.command.script_line import ScriptParser, tell_misplaced
from pyprof.cpu_record import cores
from pyprof.errors import PyprofError, UsageError, require
from pyprof.files import tell
from pyprof.step_timer import MOST
from pyprof.variants.changes import ALL, CHANGES, NOT_BY_DEFAULT, why_not

if TYPE_CHECKING:
    from pyprof.variants.compare_runs import Variant
    from pyprof.variants.json_document import TriedVariant
    from pyprof.variants.predict import Predictor
    from pyprof.variants.run_variants import Ran, Runner

FOLLOW = ("--with", "--without", "--plan", "--capture")  # options that may also stand directly behind the script
WIDTH, LEAST_WIDTH = 110, 60  # characters per line: without a terminal, and at least


def build_parser() -> ScriptParser:
    changes = "\n".join(f"  {change.name:16}{change.does}" for change in ALL)
    parser = ScriptParser(
        prog="pyprof try",
        formatter_class=LinesAsWritten,
        usage="pyprof try [options] [-m] SCRIPT [--with CHANGES] [--capture FILE] [--plan] [args ...]",
        description="Run an unchanged script as it is and once per change that is applied to it from outside, each in "
        "a process of its own without a profiler, and print the step's time, peak memory and first losses "
        "side by side. The script's files stay as they are.",
        epilog=f"changes:\n{changes}",
        follow=FOLLOW,
    )
    _add_choice(parser)
    _add_amounts(parser)
    add_json(
        parser,
        "one JSON object of all runs, errors too (pyprof schema try); what the script prints goes to standard error",
    )
    add_common(parser)
    parser.add_script()
    return parser


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--with",
        metavar="CHANGES",
        dest="first",
        type=_combinations,
        default=None,
        help="changes to try, with commas between; amp+compile: both together (default: each that concerns the script)",
    )
    parser.add_argument(
        "--without", metavar="CHANGES", type=_combinations, default=[], help="leave these changes out (compile)"
    )
    parser.add_argument(
        "--capture", metavar="FILE", help="a capture of the script: print what pyprof plan predicts beside each time"
    )
    parser.add_argument(
        "--plan",
        action="store_true",
        help="with --capture: try the plan's changes in its order, each on top of those that gained",
    )


def _add_amounts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--warmup", type=whole_number(0), default=10, metavar="N", help="steps to pass over (default: %(default)s)"
    )
    parser.add_argument(
        "--steps",
        type=whole_number(1, 3, f"a number from 1 to {MOST}"),
        default=20,
        metavar="M",
        help="steps to time; then the run is stopped (default: %(default)s)",
    )
    parser.add_argument(
        "--repeat",
        type=whole_number(1, 3),
        default=2,
        metavar="R",
        help="runs of each, one after the other in turns (default: %(default)s)",
    )
    parser.add_argument(
        "--rest",
        type=number(0, 1e6, "seconds"),
        default=60.0,
        metavar="S",
        help="how long the first run may go on after its steps, to end by itself (default: 60 s)",
    )
    parser.add_argument(
        "--limit",
        type=number(1, 1e6, "seconds"),
        default=1800.0,
        metavar="S",
        help="seconds after which a run is ended (default: 1800)",
    )
    parser.add_argument(
        "--workers",
        type=whole_number(),
        default=_workers(),
        metavar="N",
        help="processes of the change workers (default: 4, or one less than there are cores)",
    )
    parser.add_argument("--logs", metavar="FOLDER", help="keep what each run printed in this folder")


def _workers() -> int:
    return max(1, min(4, cores() - 1))


def _combinations(text: str) -> list[tuple[str, ...]]:
    """`amp,amp+compile` as [("amp",), ("amp", "compile")]."""
    found = [tuple(name.strip() for name in each.split("+")) for each in text.split(",") if each.strip()]
    for name in (name for each in found for name in each):
        if name not in CHANGES:
            raise argparse.ArgumentTypeError(f"expected changes among {', '.join(CHANGES)}, found {name!r}")
    return found


def main(argv: list[str] | None = None) -> int:
    return run_command("pyprof try", build_parser, _run, argv, inputs=(), runs_code=True)


def _run(args: argparse.Namespace) -> Done:
    from pyprof.capture.run_script import Script, check_script
    from pyprof.variants.run_variants import Options, Runner

    if args.steps > MOST:
        raise UsageError(f"argument --steps: expected a number from 1 to {MOST}, found {args.steps}")
    if args.plan and not args.capture:
        raise UsageError(
            "argument --plan: a capture has to say what to plan: pyprof run --warmup 5 --steps 3 -o net.json.gz "
            f"{args.script}, then pyprof try --plan --capture net.json.gz {args.script}"
        )
    script = Script(args.script, tuple(args.args), args.module)
    check_script(script)
    require("torch", "the script's runs need it: install it for this Python")
    warnings = tell_misplaced(build_parser(), args)
    options = Options(args.warmup, args.steps, args.rest, args.limit, args.workers)
    with _folder(args.logs) as folder:
        return _Trial(args, Runner(script, options, folder, args.json), warnings).run()


@contextmanager
def _folder(logs: str | None) -> Iterator[Path]:
    """Where the files of the runs go: the user's folder, which stays, or one that is removed."""
    if logs is not None:
        Path(logs).mkdir(parents=True, exist_ok=True)
        yield Path(logs)
        return
    folder = Path(tempfile.mkdtemp(prefix="pyprof-try-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Trial:
    """The runs of one command, in order."""

    def __init__(self, args: argparse.Namespace, runner: Runner, warnings: Sequence[str]) -> None:
        from pyprof.variants.compare_runs import Variant

        self._args, self._runner, self._warnings = args, runner, warnings
        self.original = Variant(())
        self.by_hand: list[str] = []

    def run(self) -> Done:
        from pyprof.variants.predict import Predictor

        base = None
        if self._args.capture:  # read now: a wrong name is found before the script runs
            from pyprof.prof.planning.cli import load_base

            base = load_base(self._args.capture, None, lambda _: None)[1]
        first = self._runner.run((), shown=True)
        code = first.code if first.code >= 0 else 128 - first.code
        try:
            self._check(first)
        except PyprofError as error:
            if not code:
                raise
            fail("pyprof try", error, self._args.json)
            return Done(code=code)  # the script's own
        self.original.add(first, first.code)
        predictor = None if base is None else Predictor(base, self.original.step_ns)
        if self._args.plan and predictor is not None:
            return self._answer(self._by_plan(predictor, first.code), code)
        return self._answer(self._each(predictor, first.code), code)

    def _check(self, first: Ran) -> None:
        """Raise PyprofError if the first run says nothing of a step."""
        if first.record is None or not first.record.step_ns:
            end = f" before it ended with exit code {first.code}" if first.code else ""
            raise PyprofError(
                f"{self._args.script}: expected two steps or more, found fewer{end}: a step ends with the first "
                "optimizer's step() or the first nn.Module's call; otherwise, call pyprof.step() at its end"
            )

    def _each(self, predictor: Predictor | None, code: int) -> list[TriedVariant]:
        """Each variant beside the script as it is, in turns."""
        from pyprof.variants.compare_runs import Variant
        from pyprof.variants.json_document import tried

        variants = [Variant(changes) for changes in self._wanted()]
        for variant in variants:
            variant.failed = why_not(variant.changes, self.original.runs[0].facts)
        for turn in range(self._args.repeat):
            if turn:
                self._measure(self.original, code)
            for variant in variants:
                if not variant.failed:
                    self._measure(variant, code)
        if self._args.repeat == 1 and any(variant.runs for variant in variants):
            self._measure(self.original, code)  # the noise from run to run cannot be seen in one run
        forecasts = [None if predictor is None else predictor.step(variant.changes) for variant in variants]
        return [tried(*pair) for pair in zip(variants, [self.original] * len(variants), forecasts, strict=True)]

    def _wanted(self) -> list[tuple[str, ...]]:
        """The variants to try: those asked for, or each change that concerns the script."""
        if self._args.first is not None:
            wanted = self._args.first
        else:
            facts = self.original.runs[0].facts
            wanted = [(name,) for name in CHANGES if name not in NOT_BY_DEFAULT and not why_not((name,), facts)]
        return [changes for changes in wanted if not any(set(out) <= set(changes) for out in self._args.without)]

    def _by_plan(self, predictor: Predictor, code: int) -> list[TriedVariant]:
        """The plan's changes, each on top of those before it that gained."""
        from pyprof.variants.compare_runs import Variant, change_beside
        from pyprof.variants.json_document import tried

        for _ in range(self._args.repeat - 1 or 1):
            self._measure(self.original, code)
        planned, self.by_hand = predictor.plan()
        planned = [name for name in planned if (name,) not in self._args.without]
        kept, rows = self.original, []
        for name in planned:
            variant = Variant((*kept.changes, name))
            variant.failed = why_not((name,), self.original.runs[0].facts)
            for _ in range(0 if variant.failed else self._args.repeat):
                if not variant.failed:
                    self._measure(variant, code)
            difference, beyond = change_beside(variant, kept)
            gains = beyond and difference < 0
            rows.append(tried(variant, self.original, predictor.step(variant.changes), gains))
            kept = variant if gains else kept
        return rows

    def _measure(self, variant: Variant, code: int) -> None:
        if not self._args.quiet:
            tell(f"pyprof try: running {variant.name or 'the script as it is again'}")
        variant.add(self._runner.run(variant.changes), code)
        if variant.failed:
            variant.runs.clear()

    def _answer(self, rows: list[TriedVariant], code: int) -> Done:
        from pyprof.variants.json_document import try_document
        from pyprof.variants.print_try import try_lines

        captures = [self._args.capture] if self._args.capture else []
        document = try_document(self._args.script, code, self.original, rows, self.by_hand)
        if self._args.json:
            write_answer("try", document, input=captures, warnings=self._warnings)
        elif not self._args.quiet:  # standard output is the script's
            sys.stdout.flush()
            width = max(shutil.get_terminal_size().columns, LEAST_WIDTH) if sys.stderr.isatty() else WIDTH
            sys.stderr.write("".join(f"{line}\n" for line in ("", *try_lines(document, width))))
        return Done(code=code)
