"""How well calls are predicted from measured calls of other sizes: python tools/call_times.py

Each measured size (prof/changes/effect/data) is predicted from all others. A line per kind, direction and change: calls
of 20 µs and more, the median of what remains of their time, the deviation of the logarithm of measured over predicted
times, and the same of sums of 20 calls drawn at random, as a network has (tenth, half and nine tenths of 300 draws).
"""

import math
import sys

import numpy as np

from pyprof.prof.changes.effect.nearest_sizes import CONVOLUTIONS, PRODUCTS, Call, Sizes, Variant, measured, ratio

LEAST_US, TOGETHER, DRAWS = 20.0, 20, 300
PRECISIONS = (("fp32", "tf32"), ("tf32", "bf16"), ("fp32", "bf16"))


def changes(kind: str) -> list[tuple[Variant, Variant]]:
    form = "" if kind in PRODUCTS else "nchw"
    found = [(Variant(before, form), Variant(after, form)) for before, after in PRECISIONS]
    if form and kind != "conv1d":
        found += [(Variant(p, "nchw"), Variant(p, "nhwc")) for p in ("tf32", "fp32", "bf16")]
    return found


def left_out(kind: str, direction: str, sizes: Sizes, before: Variant, after: Variant) -> np.ndarray:
    """Per call, in µs: the times before and afterwards, and the latter as predicted from all other sizes."""
    found = []
    for place, us in enumerate(sizes.us[before].tolist()):
        then = float(sizes.us[after][place])
        if math.isnan(us) or math.isnan(then) or us < LEAST_US:
            continue
        call = Call(kind, direction, tuple(sizes.features[place].tolist()), 0.0, 0.0)
        near = ratio(call, us / float(sizes.roof[before.precision][place]), before, after, leave_out=place)
        if near is not None:
            found.append((us, then, us * near.factor))
    return np.array(found).reshape(-1, 3)


def main() -> None:
    random = np.random.default_rng(16)
    print("| call | change | sizes | remains | deviation | sums of 20 |\n|---|---|---|---|---|---|")
    for (kind, direction), sizes in measured().items():
        if kind in CONVOLUTIONS and direction == "wgrad":
            continue
        for before, after in changes(kind):
            if before not in sizes.us or after not in sizes.us:
                continue
            now, told, found = left_out(kind, direction, sizes, before, after).T
            if len(told) < TOGETHER:
                continue
            some = random.integers(0, len(told), (DRAWS, TOGETHER))
            low, middle, high = np.quantile(told[some].sum(1) / found[some].sum(1), (0.1, 0.5, 0.9))
            remains, error = np.median(told / now), float(np.std(np.log(told / found)))
            sys.stdout.write(
                f"| {kind} {direction} | {' '.join(before).strip()} to {' '.join(after).strip()} | {len(told)} | "
                f"{remains:.2f} | {error:.2f} | {low:.2f} to {high:.2f}, median {middle:.2f} |\n"
            )


if __name__ == "__main__":
    main()
