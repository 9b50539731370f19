"""Sessions with the sources, names and spans that a drawing goes wrong on."""

from __future__ import annotations

import os

from report_builders import Sources, parameter, session_of

from whygrad.session import Edit, Finding, Fix, Location, PathStep, Related, Session


def wide_characters() -> Session:
    """Tabs, CJK and emoji before and inside the spans."""
    sources = Sources(
        wide="\n".join(
            [
                "def 損失を計算(予測):",
                "\t名前 = '重み😀'; 値 = 予測.detach() # 切断",
                "\treturn\t名前, 値",
            ]
        )
    )
    finding = Finding(
        code="detach-call",
        severity="error",
        symptom="raises",
        title="`予測.detach()` cuts `loss` off from `エンコーダ`",
        message="cut",
        location=sources.at("wide", 2, "予測.detach()", function="損失を計算"),
        label="ここで切れる",
        related=[Related("surfaced", sources.at("wide", 3, "値"), "no gradient")],
        parameters=["層.重み", "bias"],
        path=[
            parameter("層.重み", [3, 4]),
            parameter("bias", [4]),
            sources.op("detach", "cut", [2, 4], "wide", 2, "値 = 予測.detach()"),
            sources.op("sum", "values", [], "wide", 3, "return 名前, 値"),
        ],
    )
    return session_of(sources, finding)


EVIL = "\x1b[31mred\x1b]0;title\x07\r\x9b2J\u202egnp.evil[bold]x[/bold]"


def hostile_text() -> Session:
    """Escape sequences and markup in every place where a text can come from outside."""
    path = os.path.join(os.getcwd(), f"{EVIL}.py")
    line = f"    x = '{EVIL}'.detach()"
    at = Location(path, 1, 9, 1, len(line) + 1, EVIL, line.strip())
    finding = Finding(
        code="detach-call",
        severity="error",
        symptom="raises",
        title=EVIL,
        message=f"{EVIL}\nsecond line, 100%: done",
        location=at,
        label=EVIL,
        related=[Related(EVIL, Location(path, 40, text=EVIL), EVIL)],
        parameters=[EVIL],
        path=[
            PathStep("parameter", EVIL, "live", [1]),
            PathStep("op", EVIL, "cut", [1], path, 1, EVIL),
        ],
        why=EVIL,
        checked=[EVIL],
        inferred=[EVIL],
        fix=Fix(EVIL, [Edit(path, 1, [EVIL], [f"{EVIL}+"])], EVIL, EVIL),
    )
    return session_of(Sources(), finding, sources={path: {1: line}}, notes=[EVIL])


def spans_over_lines() -> Session:
    """A chain, a call that opens on its first line, and a place with no source at all."""
    sources = Sources(
        chain="""
        def target(batch):
            scores = (
                teacher(batch)
                .detach()
            )
            return nn.functional.kl_div(
                scores,
                batch.soft_labels,
                reduction="batchmean",
                log_target=True,
            )
        """
    )
    finding = Finding(
        code="detach-call",
        severity="error",
        symptom="raises",
        title="`.detach()` cuts `loss` off from every parameter (6 of 6)",
        message="cut",
        location=sources.at("chain", 3, "teacher", to=4, function="target"),
        label="`scores` has no history",
        related=[
            Related("operation", sources.at("chain", 6, "nn.functional", to=11)),
            Related(
                "library",
                Location("/opt/env/lib/python3.12/site-packages/timm/models/vit.py", 1204, 13),
                "the only other user",
            ),
        ],
    )
    return session_of(sources, finding)


def frozen_and_live() -> Session:
    """Parameters that enter at two rows, one of them frozen, and an edit in a second file."""
    sources = Sources(
        net="""
        x = self.backbone(x)
        x = self.head(x)
        return x.argmax(-1).float()
        """,
        setup="""
        import torch
        model = Net()
        """,
    )
    finding = Finding(
        code="non-differentiable-op",
        severity="error",
        symptom="raises",
        title="`argmax` has no gradient, so `loss` reaches no parameter (0 of 2)",
        message="argmax has no gradient.",
        location=sources.at("net", 3, "x.argmax(-1)"),
        label="integers come out",
        parameters=["head.weight"],
        path=[
            parameter("backbone.weight", [16, 16], "off"),
            PathStep("source", "x", "off", [4, 16], sources.path("net"), 1, "x"),
            sources.op("linear", "off", [4, 16], "net", 1, "x = self.backbone(x)"),
            parameter("head.weight", [10, 16]),
            sources.op("linear", "live", [4, 10], "net", 2, "x = self.head(x)"),
            sources.op("argmax", "cut", [4], "net", 3, "x.argmax(-1)"),
            sources.op("float", "values", [4], "net", 3, "return x.argmax(-1).float()"),
        ],
        fix=Fix(
            "use the probabilities",
            [
                Edit(
                    sources.path("net"),
                    3,
                    ["return x.argmax(-1).float()"],
                    ["return x.softmax(-1)"],
                ),
                Edit(sources.path("setup"), 3, [], ["model.head.requires_grad_(True)"]),
            ],
        ),
    )
    return session_of(sources, finding)


def long_source_lines() -> Session:
    """A span far to the right, one too long to show, and labels that need room."""
    arguments = ", ".join(f"argument_{i}" for i in range(9))
    sources = Sources(
        far=f"""
        def fuse(parts):
            fused = torch.stack([parts.left, parts.right, parts.upper, parts.lower], dim=1).detach()
            return combine({arguments})
        """
    )
    finding = Finding(
        code="detach-call",
        severity="error",
        symptom="raises",
        title="`.detach()` cuts `loss` off from every parameter (3 of 3)",
        message="cut",
        location=sources.at("far", 2, ".detach()", function="fuse"),
        label="here the history ends, four tensors wide",
        related=[
            Related("operation", sources.at("far", 3, f"combine({arguments})"), "values only"),
        ],
    )
    return session_of(sources, finding)
