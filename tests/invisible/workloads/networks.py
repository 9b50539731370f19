"""Modules in training and evaluation."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


def _train(model: nn.Module, inputs: Any, steps: int = 3, rate: float = 0.1) -> list[Any]:
    """Losses, gradients and parameters of a few steps towards zero."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    seen: list[Any] = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        seen.append(loss.detach().clone())
        seen += [p.grad.clone() for p in model.parameters() if p.grad is not None]
        optimizer.step()
    return [*seen, *model.state_dict().values()]


def dropout_mlp() -> Any:
    model = nn.Sequential(
        nn.Linear(6, 8),
        nn.ReLU(inplace=True),
        nn.Dropout(0.4),
        nn.AlphaDropout(0.1),
        nn.Linear(8, 2),
    )
    return _train(model, torch.randn(5, 6))


def batch_norm_cnn() -> Any:
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.GELU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 2, 3),
        nn.GroupNorm(2, 2),
        nn.Flatten(),
        nn.LazyLinear(3),
    )
    images = torch.randn(3, 2, 8, 8)
    model(images)
    trained = _train(model, images)
    model.eval()
    with torch.no_grad():
        return [*trained, model(images)]


def attention_in_training() -> Any:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
    model = nn.TransformerEncoder(layer, 2)
    words = torch.randn(2, 5, 8)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    mixed, weights = attention(words, words, words, attn_mask=mask)
    mixed.sum().backward()
    return [_train(model, words), mixed, weights, *[p.grad for p in attention.parameters()]]


def attention_in_evaluation() -> Any:
    """Torch takes a fast path here, with other numbers in the last bits."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    attention = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    words = torch.randn(3, 7, 16)
    padding = torch.zeros(3, 7, dtype=torch.bool)
    padding[1, 4:] = True
    seen = []
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            seen += [model(words), model(words, src_key_padding_mask=padding), layer.eval()(words)]
            seen += attention(words, words, words)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        seen.append(model(words))
    return seen


def attention_kernels() -> Any:
    query, key, value = (torch.randn(2, 2, 6, 8, requires_grad=True) for _ in range(3))
    out = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    dropped = F.scaled_dot_product_attention(query, key, value, dropout_p=0.3)
    (out.sum() + dropped.square().sum()).backward()
    return [out, dropped, query.grad, key.grad, value.grad]


def recurrent_with_packed_sequences() -> Any:
    lstm = nn.LSTM(4, 5, num_layers=2, dropout=0.3, batch_first=True, bidirectional=True)
    gru = nn.GRU(10, 3)
    cell = nn.LSTMCell(3, 3)
    packed = pack_padded_sequence(
        torch.randn(3, 6, 4), torch.tensor([6, 4, 2]), batch_first=True, enforce_sorted=False
    )
    out, (hidden, state) = lstm(packed)
    padded, lengths = pad_packed_sequence(out)
    over, last = gru(padded)
    step = cell(last[0])
    loss = over.square().mean() + hidden.mean() + state.mean() + step[0].sum()
    loss.backward()
    parameters = [*lstm.parameters(), *gru.parameters(), *cell.parameters()]
    return [loss, padded, lengths, *[p.grad for p in parameters]]


def embeddings() -> Any:
    plain = nn.Embedding(10, 4, padding_idx=0, max_norm=1.0)
    bag = nn.EmbeddingBag(10, 4, mode="mean", sparse=True)
    words = torch.tensor([[1, 2, 0], [4, 4, 9]])
    optimizer = torch.optim.SparseAdam(bag.parameters(), lr=0.1)
    seen: list[Any] = []
    for _ in range(2):
        optimizer.zero_grad()
        plain.zero_grad()
        loss = plain(words).sum() + bag(words).square().sum()
        loss.backward()
        seen += [loss.detach(), plain.weight.grad.clone(), bag.weight.grad.clone()]
        optimizer.step()
    return [*seen, plain.weight, bag.weight]


def lazy_modules() -> Any:
    model = nn.Sequential(nn.LazyConv1d(3, 2), nn.LazyBatchNorm1d(), nn.Flatten(), nn.LazyLinear(2))
    repr(model), list(model.parameters())
    inputs = torch.randn(4, 2, 5)
    model(inputs)
    return _train(model, inputs)


def parametrized_modules() -> Any:
    normed = parametrizations.weight_norm(nn.Linear(4, 4))
    spectral = parametrizations.spectral_norm(nn.Linear(4, 4))
    orthogonal = parametrizations.orthogonal(nn.Linear(4, 4))
    old_style = nn.utils.weight_norm(nn.Linear(4, 2))
    trained = _train(
        nn.Sequential(normed, nn.Tanh(), spectral, orthogonal, old_style), torch.randn(3, 4)
    )
    parametrize.remove_parametrizations(normed, "weight")
    with parametrize.cached():
        cached = spectral(torch.ones(1, 4)) + spectral(torch.ones(1, 4))
    return [*trained, normed.weight, cached]


def losses() -> Any:
    logits = torch.randn(4, 3, requires_grad=True)
    labels = torch.tensor([0, 2, 1, 2])
    soft = torch.softmax(torch.randn(4, 3), dim=1)
    values = [
        F.cross_entropy(logits, labels, label_smoothing=0.1),
        F.nll_loss(F.log_softmax(logits, dim=-1), labels),
        F.kl_div(F.log_softmax(logits, dim=-1), soft, reduction="batchmean"),
        F.binary_cross_entropy_with_logits(logits, soft),
        F.smooth_l1_loss(logits, soft),
        F.gaussian_nll_loss(logits, soft, torch.ones(4, 3)),
        F.triplet_margin_loss(logits, soft, soft.flip(0)),
        nn.CTCLoss()(logits.log_softmax(-1).unsqueeze(1), torch.tensor([[1, 2]]), (4,), (2,)),
    ]
    torch.stack(values).sum().backward()
    return [*values, logits.grad]


def gumbel_and_distributions() -> Any:
    logits = torch.randn(5, 3, requires_grad=True)
    hard = F.gumbel_softmax(logits, hard=True)
    normal = torch.distributions.Normal(logits, logits.exp())
    sample = normal.rsample()
    categorical = torch.distributions.Categorical(logits=logits)
    action = categorical.sample()
    mixture = torch.distributions.MixtureSameFamily(
        categorical, torch.distributions.Normal(logits, torch.ones_like(logits))
    )
    terms = [
        (hard * logits).sum(),
        normal.log_prob(sample).sum(),
        categorical.log_prob(action).sum(),
        categorical.entropy().sum(),
        mixture.log_prob(torch.zeros(5)).sum(),
        torch.distributions.kl_divergence(normal, torch.distributions.Normal(0.0, 1.0)).sum(),
        torch.distributions.Beta(logits.exp(), 2.0).rsample().sum(),
        torch.distributions.MultivariateNormal(torch.zeros(3), torch.eye(3)).log_prob(logits).sum(),
    ]
    sum(terms).backward()
    return [hard, sample, action, *terms, logits.grad]
