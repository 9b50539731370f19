"""What watching costs: bare, watched in three ways and anomaly mode, interleaved in one process.

    python bench/overhead.py [--rounds 30]

Each round times some training steps of each variant on each workload, so that a noisy machine
disturbs all of them alike. The table shows the median of the ratios to bare within a round.

- closely: the first steps of an optimizer, in which gradients are followed and looked at
- recorded: the steps after them
- lightly: after a minute and 256 steps, when most steps are not recorded
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from whygrad.record.health import CLOSE_STEPS
from whygrad.record.tempo import FULL_STEPS
from whygrad.watching import Watch

Step = Callable[[], None]
SHOWN = ("closely", "recorded", "lightly")


def tiny_mlp() -> Step:
    """The worst case: microseconds of work in each call."""
    model = nn.Sequential(
        nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)
    )
    data, target = torch.randn(32, 16), torch.randn(32, 1)
    return _training_step(model, lambda: nn.functional.mse_loss(model(data), target))


def transformer() -> Step:
    layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    data = torch.randn(8, 64, 256)
    return _training_step(model, lambda: model(data).square().mean())


def small_cnn() -> Step:
    def block(width_in: int, width_out: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(width_in, width_out, 3, padding=1), nn.BatchNorm2d(width_out), nn.ReLU()
        )

    model = nn.Sequential(
        block(3, 16),
        block(16, 32),
        nn.MaxPool2d(2),
        block(32, 32),
        block(32, 64),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    images, labels = torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))
    return _training_step(model, lambda: nn.functional.cross_entropy(model(images), labels))


def _training_step(model: nn.Module, loss_of: Callable[[], torch.Tensor]) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()

    return step


WORKLOADS = {
    "tiny MLP": (tiny_mlp, 200),
    "transformer encoder, 4 layers, d=256": (transformer, 2),
    "small CNN": (small_cnn, 8),
}


def timed(step: Step, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - start) / repeats


def closely(make: Callable[[], Step]) -> float:
    """The first two steps of an optimizer; the third ends with the diagnosis, which comes once.

    Another model is trained before, as places in the source are looked up once per program.
    """
    watch = Watch()
    watch.start()
    try:
        timed(make(), CLOSE_STEPS)
        gc.collect()  # what the diagnosis has left behind comes once, too
        step = make()
        return timed(step, 2)
    finally:
        watch.stop()


def bare(step: Step, repeats: int) -> float:
    gc.collect()
    return timed(step, repeats)


def bare_start(make: Callable[[], Step]) -> float:
    """The same, unwatched: an optimizer's first step makes its state, and takes longer."""
    timed(make(), CLOSE_STEPS)
    gc.collect()
    step = make()
    return timed(step, 2)


def recorded(step: Step, repeats: int, watch: Watch) -> float:
    watch.watcher.recorder.step = CLOSE_STEPS + 1  # so that it never gets to rest
    watch.start()
    try:
        return timed(step, repeats)
    finally:
        watch.stop()


def lightly(step: Step, repeats: int) -> float:
    watch = Watch()
    watch.start()
    try:
        watch.watcher.tempo.full_until = 0.0
        watch.watcher.recorder.step = FULL_STEPS - CLOSE_STEPS
        for _ in range(2 * CLOSE_STEPS):
            step()
        if not watch.watcher.resting:
            raise RuntimeError("the steps that should be lightly watched are not")
        watch.watcher.recorder.step = 2 * FULL_STEPS + 1
        gc.collect()
        return timed(step, repeats)
    finally:
        watch.stop()


def anomaly(step: Step, repeats: int) -> float:
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        return timed(step, repeats)


def measure(name: str, rounds: int) -> tuple[float, dict[str, float], dict[str, float]]:
    """(bare seconds, variant -> median ratio, what the record held)."""
    make, repeats = WORKLOADS[name]
    step = make()
    watch = Watch()
    variants: dict[str, Callable[[], float]] = {
        "bare": lambda: bare(step, repeats),
        "bare start": lambda: bare_start(make),
        "closely": lambda: closely(make),
        "recorded": lambda: recorded(step, repeats, watch),
        "lightly": lambda: lightly(step, repeats),
        "anomaly": lambda: anomaly(step, repeats),
    }
    for run in variants.values():
        for _ in range(3):
            run()
    rows: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for variant, run in variants.items():
            rows[variant].append(run())
    base = dict.fromkeys(variants, "bare") | {"closely": "bare start"}
    ratios = {
        variant: statistics.median(
            mine / bare for mine, bare in zip(times, rows[base[variant]], strict=True)
        )
        for variant, times in rows.items()
    }
    return statistics.median(rows["bare"]), ratios, watch.session().overhead


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.autograd.set_detect_anomaly(False)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {args.rounds} rounds\n")
    header = ("workload", "bare step", *SHOWN, "anomaly mode", "operations held", "record")
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for name in WORKLOADS:
        bare, ratios, held = measure(name, args.rounds)
        operations = held["operations_held"]
        print(
            f"| {name} | {bare * 1e3:.2f} ms "
            + "".join(f"| x{ratios[variant]:.2f} " for variant in (*SHOWN, "anomaly"))
            + f"| {operations:.0f} "
            f"| {held['record_bytes'] / 1e6:.1f} MB |"
        )


if __name__ == "__main__":
    main()
