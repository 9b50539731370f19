"""Sessions as a run would leave them, made by hand, so that no test of a report needs torch."""

from __future__ import annotations

from report_builders import Sources, parameter, session_of
from report_odd_sessions import (
    frozen_and_live,
    hostile_text,
    long_source_lines,
    spans_over_lines,
    wide_characters,
)
from report_parameter_sessions import cleared_before_the_step, dead_unit_and_left_out_head

from whygrad.session import Edit, ExceptionInfo, Finding, Fix, Program, Related, Session

POOLING = '''
import torch


def masked_mean(x, mask):
    mask = mask.unsqueeze(-1)
    total = (x * mask).sum(dim=1)
    count = mask.sum(dim=1).clamp(min=1)
    return total / count


def pool(x, mask):
    # length carries no meaning here
    x = unit_norm(x)
    return masked_mean(x, mask)


def unit_norm(x):
    """Scale each time step to length one."""
    x = x.detach()
    return x / x.norm(dim=-1, keepdim=True).clamp(min=1e-6)
'''

TRAIN = """
import torch
from torch import nn
from pooling import pool


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(64, 32)

    def forward(self, tokens, mask):
        # one linear layer is enough here
        features = torch.tanh(self.encoder(tokens))
        return pool(features, mask)


model = Encoder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step(tokens, mask, target):
    model.train()

    embedding = model(tokens, mask)
    loss = nn.functional.mse_loss(embedding, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def detach_call() -> Session:
    """The content of the report that sets the bar for all others."""
    sources = Sources(pooling=POOLING, train=TRAIN)
    long = [8, 16, 32]
    finding = Finding(
        code="detach-call",
        severity="error",
        symptom="raises",
        title="`.detach()` cuts `loss` off from every parameter (2 of 2)",
        message="`.detach()` in unit_norm cuts `loss` off from encoder.weight and encoder.bias.",
        location=sources.at("pooling", 19, "x.detach()", function="unit_norm"),
        label="`x` enters with history and leaves without it",
        related=[
            Related(
                "via",
                sources.at("train", 24, "model(tokens, mask)"),
                "via forward > pool > unit_norm",
            ),
            Related(
                "surfaced",
                sources.at("train", 27),
                "RuntimeError: element 0 of tensors does not require grad and does not have a"
                " grad_fn",
            ),
        ],
        parameters=["encoder.weight", "encoder.bias"],
        path=[
            parameter("encoder.weight", [32, 64]),
            parameter("encoder.bias", [32]),
            sources.op("linear", "live", long, "train", 13, "self.encoder(tokens)"),
            sources.op("tanh", "live", long, "train", 13, "features = torch.tanh(…)"),
            sources.op("detach", "cut", long, "pooling", 19, "x = x.detach()"),
            sources.op("div", "values", long, "pooling", 20, "return x / x.norm(…)"),
            sources.op("mul", "values", long, "pooling", 6, "x * mask"),
            sources.op("sum", "values", [8, 32], "pooling", 6, "total = (x * mask).sum(dim=1)"),
            sources.op("div", "values", [8, 32], "pooling", 8, "return total / count"),
            sources.op("mse_loss", "values", [], "train", 25, "loss = nn.functional.mse_loss(…)"),
        ],
        hidden_operations=4,
        why="`.detach()` returns the same numbers without their history, so autograd has no edge"
        " from `loss` back to `encoder`.",
        checked=[
            "it is the only cut",
            "restoring this one edge in the recorded graph lets 2 of 2 parameters reach `loss`",
        ],
        fix=Fix(
            title="delete the detach",
            edits=[Edit(sources.path("pooling"), 19, ["    x = x.detach()"], [])],
            safety="changes gradients only; forward values stay equal",
            deliberate="if it is deliberate (fixed target, frozen encoder), this loss trains"
            " nothing: add a term that reaches a parameter.",
        ),
    )
    return session_of(
        sources,
        finding,
        program=Program(
            ["train.py"],
            1,
            ExceptionInfo(
                "RuntimeError",
                "element 0 of tensors does not require grad and does not have a grad_fn",
            ),
        ),
    )


BLOCKS = """
class Decoder(nn.Module):
    def forward(self, hidden):
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


def training_step(batch):
    with torch.no_grad():
        hidden = decoder.embed(batch.tokens)
        hidden = decoder(hidden)
    logits = probe(hidden)
    loss = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten())
    loss.backward()
    optimizer.step()
"""


def forty_silent_parameters() -> Session:
    """A warning without an exception, many parameters with long names, a long path."""
    sources = Sources(finetune=BLOCKS)
    names = [
        f"transformer.blocks.{block}.{layer}.{kind}"
        for block in range(5)
        for layer in ("attention.qkv", "attention.out", "mlp.up", "mlp.down")
        for kind in ("weight", "bias")
    ]
    wide = [4, 128, 768]
    path = [parameter(name, [768, 2304] if name.endswith("weight") else [2304]) for name in names]
    path.append(
        sources.op("embedding", "live", wide, "finetune", 10, "decoder.embed(batch.tokens)")
    )
    for _ in range(9):
        path += [
            sources.op("layer_norm", "values", wide, "finetune", 3, "for block in self.blocks:"),
            sources.op("linear", "values", wide, "finetune", 4, "block(hidden)"),
            sources.op("gelu", "values", wide, "finetune", 4, "hidden = block(hidden)"),
        ]
    path[len(names)].state = "cut"
    path += [
        sources.op("linear", "values", wide, "finetune", 5, "return self.head(hidden)"),
        sources.op("linear", "live", [4, 128, 50257], "finetune", 12, "logits = probe(hidden)"),
        sources.op("cross_entropy", "live", [], "finetune", 13, "loss = F.cross_entropy(…)"),
    ]
    finding = Finding(
        code="no-grad-block",
        severity="warning",
        symptom="silent",
        title="40 of 42 parameters get no gradient: their forward runs under `torch.no_grad()`",
        message="The forward of 40 parameters runs under torch.no_grad(), so they never train.",
        location=sources.at("finetune", 9, "torch.no_grad()", function="training_step"),
        label="gradients are off from here to line 11",
        related=[
            Related("surfaced", sources.at("finetune", 15), "40 parameters had no gradient here"),
        ],
        parameters=names,
        path=path,
        hidden_operations=61,
        why="Under `torch.no_grad()` operations keep no history, so nothing that `loss` reaches"
        " leads back into `transformer`.",
        checked=["`probe.weight` and `probe.bias` do reach `loss`"],
        inferred=["the block was meant for the embedding alone, because `optimizer` holds all 42"],
        fix=Fix(
            "take the decoder out of the block",
            [
                Edit(
                    sources.path("finetune"),
                    10,
                    [
                        "        hidden = decoder.embed(batch.tokens)",
                        "        hidden = decoder(hidden)",
                    ],
                    [
                        "        hidden = decoder.embed(batch.tokens)",
                        "    hidden = decoder(hidden)",
                    ],
                )
            ],
            "forward values stay equal; memory for the activations is needed again",
            "leave the frozen parameters out of the optimizer.",
        ),
        count=12,
        first_step=3,
    )
    return session_of(sources, finding, steps=14, program=Program(["finetune.py"], 0))


def two_findings_and_a_note() -> Session:
    sources = Sources(
        loop="""
        model = Net()
        running = 0.0
        for batch in loader:
            hidden = model.encode(batch)
            scores = torch.exp(
                model.score(hidden)
            )
            scores += 1
            loss = scores.sum()
            loss.backward()
            running += loss.item()
        history = []
        history.append(loss)
        """
    )
    written = Finding(
        code="inplace-saved",
        severity="error",
        symptom="raises",
        title="`scores += 1` overwrites a value that `exp` needs for its gradient",
        message="`scores += 1` changes the output of exp, which backward needs unchanged.",
        location=sources.at("loop", 8, "scores += 1"),
        label="version 0 becomes version 1",
        related=[
            Related(
                "saved", sources.at("loop", 5, "torch.exp(", to=7), "`exp` keeps its result here"
            ),
            Related(
                "surfaced",
                sources.at("loop", 10),
                "RuntimeError: one of the variables needed for gradient computation has been"
                " modified by an inplace operation: [torch.FloatTensor [8, 4]], which is output 0"
                " of ExpBackward0, is at version 1; expected version 0 instead.",
            ),
        ],
        why="The derivative of exp is its own result.",
        checked=["version 1 found, version 0 saved"],
        fix=Fix(
            "write to a new tensor",
            [Edit(sources.path("loop"), 8, ["    scores += 1"], ["    scores = scores + 1"])],
            "same values, same gradients as intended",
        ),
    )
    graph_kept = Finding(
        code="graph-kept",
        severity="warning",
        symptom="silent",
        title="`history` keeps the graph of every step alive",
        message="Appending `loss` keeps its graph alive.",
        location=sources.at("loop", 13, "loss"),
        label="this value carries its graph",
        fix=Fix(
            "keep the number alone",
            [
                Edit(
                    sources.path("loop"),
                    13,
                    ["history.append(loss)"],
                    ["history.append(loss.item())"],
                )
            ],
        ),
    )
    note = Finding(
        code="frozen-parameters",
        severity="info",
        symptom="silent",
        title="3 of 10 parameters are frozen by `requires_grad_(False)`",
        message="3 parameters are frozen.",
        location=sources.at("loop", 1),
    )
    return session_of(sources, written, graph_kept, note, notes=["the compiler was off"])


def healthy() -> Session:
    return session_of(
        Sources(),
        steps=3,
        program=Program(["train.py"], 0),
        notes=["steps after the first 2 were sampled: 1 in 50 is recorded in full"],
    )


ALL = (
    detach_call,
    forty_silent_parameters,
    two_findings_and_a_note,
    wide_characters,
    hostile_text,
    spans_over_lines,
    frozen_and_live,
    long_source_lines,
    cleared_before_the_step,
    dead_unit_and_left_out_head,
    healthy,
)
