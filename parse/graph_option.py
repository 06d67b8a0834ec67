"""The option --graphs, which the commands that read a profiler's file share."""

import argparse


def add_graphs(parser: argparse.ArgumentParser) -> None:
    """Add the option: traces of the capture of CUDA graphs, for ``read_graphs``."""
    parser.add_argument(
        "--graphs",
        metavar="TRACE",
        action="append",
        default=[],
        help="a trace or nsys report of the capture of CUDA graphs that the file replays, or a folder of such traces, "
        "as vLLM and SGLang write them: the replayed kernels get op, layer, line and shapes from it; may be repeated",
    )
