"""Sessions of silent failures: findings without a path, and what became of each parameter."""

from __future__ import annotations

from report_builders import Sources, session_of

from whygrad.session import (
    Finding,
    Fix,
    GradientFlow,
    ParameterState,
    Program,
    Related,
    Session,
)

TRAINING = """
encoder, head = Encoder(), Head()
optimizer = torch.optim.AdamW(encoder.parameters(), lr=3e-4)
for batch in loader:
    optimizer.zero_grad()
    loss = head(encoder(batch.tokens), batch.labels)
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()
"""


def state(
    name: str,
    gradient: GradientFlow = "flows",
    norm: float | None = None,
    *,
    shape: tuple[int, ...] = (64, 64),
    optimizer: str = "AdamW",
    moved: bool | None = True,
    reason: str = "",
) -> ParameterState:
    asks = gradient != "frozen"
    return ParameterState(name, list(shape), asks, gradient, norm, optimizer, moved, reason)


def every_kind() -> list[ParameterState]:
    """One row of each kind."""
    return [
        state("embed.weight", "frozen", moved=None, reason="frozen"),
        state("encoder.0.weight", norm=0.041267),
        state("encoder.0.bias", norm=3.2e-7, shape=(64,)),
        state("gate.scale", "zero", 0.0, shape=(), moved=False, reason="dead-relu"),
        state("norm.weight", "non-finite", float("nan"), shape=(64,), reason="nan-gradient"),
        state("norm.bias", "non-finite", float("inf"), shape=(64,), reason="nan-gradient"),
        state("experts.3.weight", "none", moved=False, reason="not used yet"),
        state("head.weight", norm=12.5, optimizer="", moved=False, reason="in no optimizer"),
    ]


def blocks(number: int, **values: object) -> list[ParameterState]:
    return [
        state(f"transformer.blocks.{n // 2}.attention.qkv.{kind}", **values)  # type: ignore[arg-type]
        for n, kind in zip(range(number), ["weight", "bias"] * number, strict=False)
    ]


def cleared_before_the_step() -> Session:
    """An order of the step: three places, no path, more parameters than a line can take."""
    sources = Sources(training=TRAINING)
    states = [
        state(f"encoder.layers.{layer}.{kind}", norm=0.01, moved=False, reason="zeroed-early")
        for layer in range(12)
        for kind in ("attention.weight", "mlp.weight")
    ]
    finding = Finding(
        code="zeroed-early",
        severity="warning",
        symptom="silent",
        title="`optimizer.zero_grad()` throws away the gradients just before the step needs them",
        message="The gradients of 24 parameters are cleared between backward() and step().",
        location=sources.at("training", 7, "optimizer.zero_grad()"),
        label="24 gradients become None here, unused",
        related=[
            Related("created", sources.at("training", 6, "loss.backward()"), "made here"),
            Related("used", sources.at("training", 8, "optimizer.step()"), "nothing left to use"),
        ],
        parameters=[row.name for row in states],
        why="a step moves a parameter only if its gradient is there.",
        checked=["3 of 3 steps found 24 of 24 gradients missing"],
        fix=Fix("clear the gradients before backward() or after the step"),
        count=3,
    )
    return session_of(
        sources,
        finding,
        parameters=[*states, state("head.weight", norm=1.5, optimizer="", moved=None)],
        steps=3,
        program=Program(["training.py"], 0),
    )


def dead_unit_and_left_out_head() -> Session:
    """Two silent findings of one and two parameters, and a note."""
    sources = Sources(training=TRAINING)
    left_out = Finding(
        code="not-held",
        severity="warning",
        symptom="silent",
        title="`head.weight` and `head.bias` get gradients, but no optimizer holds them",
        message="No optimizer holds head.weight and head.bias.",
        location=sources.at("training", 2, "encoder.parameters()"),
        label="only these are handed over",
        related=[Related("created", sources.at("training", 1, "Head()"), "made here")],
        parameters=["head.weight", "head.bias"],
    )
    dead = Finding(
        code="dead-relu",
        severity="warning",
        symptom="silent",
        title="every input of this ReLU is negative",
        message="The ReLU lets nothing through.",
        location=sources.at("training", 5, "encoder(batch.tokens)"),
        label="all 4096 outputs are 0",
        parameters=["gate.scale"],
    )
    note = Finding(
        code="frozen-parameters",
        severity="info",
        symptom="silent",
        title="1 frozen parameter is in the optimizer",
        message="1 frozen parameter is in the optimizer.",
        location=sources.at("training", 2),
        parameters=["embed.weight"],
    )
    states = every_kind()
    states[0].reason = "frozen-parameters"
    states[-1].reason = "not-held"
    states.append(state("head.bias", norm=1.0, optimizer="", moved=False, reason="not-held"))
    return session_of(
        sources,
        left_out,
        dead,
        note,
        parameters=states,
        steps=40,
        program=Program(["training.py"], 0),
    )


ALL = (cleared_before_the_step, dead_unit_and_left_out_head)
