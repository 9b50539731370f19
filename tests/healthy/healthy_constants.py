"""Values that are taken out of the graph on purpose, while the parameters learn elsewhere."""

from __future__ import annotations

import copy

import torch
from healthy_helpers import Moved, regression
from torch import nn
from torch.distributions import Categorical, Normal


def detach_and_item_for_logging() -> None:
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    moved, log, history = Moved(model), [], []
    x, target = regression()
    for _ in range(4):
        loss = nn.functional.mse_loss(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.append(loss.item())
        history.append(loss.detach())
    assert moved.all() and log[-1] < log[0]
    assert torch.stack(history).mean() > 0


def plots_and_metrics_through_numpy() -> None:
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    moved, x_and_y = Moved(model), regression()
    for _ in range(3):
        prediction = model(x_and_y[0])
        loss = nn.functional.mse_loss(prediction, x_and_y[1])
        errors = (prediction.detach().cpu().numpy() - x_and_y[1].numpy()) ** 2
        running = torch.tensor(errors.mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert moved.all() and running > 0


def moving_average_of_the_weights() -> None:
    model = nn.Linear(6, 1)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    moved, followed = Moved(model), Moved(average)
    x, target = regression()
    for _ in range(4):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), target).backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
    assert moved.all() and followed.all()


def value_learning_with_a_target_network() -> None:
    network = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    target_network = copy.deepcopy(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    moved = Moved(network)
    for step in range(6):
        state, following = torch.randn(16, 6), torch.randn(16, 6)
        action, reward = torch.randint(0, 3, (16, 1)), torch.randn(16)
        with torch.no_grad():
            best = target_network(following).max(dim=1).values
        value = network(state).gather(1, action).squeeze(1)
        optimizer.zero_grad()
        nn.functional.smooth_l1_loss(value, reward + 0.9 * best).backward()
        optimizer.step()
        if step % 3 == 2:
            target_network.load_state_dict(network.state_dict())
    assert moved.all()


def policy_gradient_with_sampled_actions() -> None:
    """sample() gives no gradient; log_prob() does, and that is all that is needed."""
    policy = nn.Linear(6, 3)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.05)
    moved, baseline = Moved(policy), 0.0
    for _ in range(4):
        choice = Categorical(logits=policy(torch.randn(16, 6)))
        action = choice.sample()
        reward = (action == 1).float()
        loss = -(choice.log_prob(action) * (reward - baseline)).mean()
        baseline = 0.9 * baseline + 0.1 * reward.mean().item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert moved.all()


def actor_and_critic_with_a_detached_advantage() -> None:
    actor, critic = nn.Linear(6, 3), nn.Linear(6, 1)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=0.01)
    moved = Moved([*actor.parameters(), *critic.parameters()])
    for _ in range(3):
        state, rewards = torch.randn(8, 6), torch.randn(8)
        choice = Categorical(logits=actor(state))
        action = choice.sample()
        value = critic(state).squeeze(1)
        advantage = (rewards - value).detach()
        loss = -(choice.log_prob(action) * advantage).mean() + (rewards - value).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert moved.all()


def vector_quantisation_with_a_straight_through_estimator() -> None:
    encoder, decoder, codes = nn.Linear(6, 4), nn.Linear(4, 6), nn.Embedding(5, 4)
    modules = nn.ModuleList([encoder, decoder, codes])
    optimizer = torch.optim.Adam(modules.parameters(), lr=0.01)
    moved, x = Moved(modules), torch.randn(32, 6)
    for _ in range(3):
        latent = encoder(x)
        nearest = torch.cdist(latent, codes.weight).argmin(dim=1)
        code = codes(nearest)
        loss = nn.functional.mse_loss(code, latent.detach())
        loss = loss + 0.25 * nn.functional.mse_loss(latent, code.detach())
        passed = latent + (code - latent).detach()
        loss = loss + nn.functional.mse_loss(decoder(passed), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert moved.all()


def adversarial_training_with_a_detached_fake() -> None:
    generator, discriminator = (
        nn.Linear(4, 6),
        nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)),
    )
    make = torch.optim.Adam(generator.parameters(), lr=0.01)
    judge = torch.optim.Adam(discriminator.parameters(), lr=0.01)
    moved_generator, moved_judge = Moved(generator), Moved(discriminator)
    bce = nn.functional.binary_cross_entropy_with_logits
    for _ in range(4):
        real, fake = torch.randn(8, 6) + 1, generator(torch.randn(8, 4))
        judge.zero_grad()
        said_real, said_fake = discriminator(real), discriminator(fake.detach())
        loss = bce(said_real, torch.ones(8, 1)) + bce(said_fake, torch.zeros(8, 1))
        loss.backward()
        judge.step()
        make.zero_grad()
        bce(discriminator(fake), torch.ones(8, 1)).backward()
        make.step()
    assert moved_generator.all() and moved_judge.all()


def truncated_backpropagation_through_time() -> None:
    cell, readout = nn.GRU(3, 8, batch_first=True), nn.Linear(8, 1)
    optimizer = torch.optim.SGD([*cell.parameters(), *readout.parameters()], lr=0.1)
    moved = Moved([*cell.parameters(), *readout.parameters()])
    hidden = torch.zeros(1, 4, 8)
    for chunk in torch.randn(4, 16, 3).split(4, dim=1):
        out, hidden = cell(chunk, hidden)
        optimizer.zero_grad()
        readout(out).square().mean().backward()
        optimizer.step()
        hidden = hidden.detach()
    assert moved.all()


def pseudo_labels_from_the_model_itself() -> None:
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    moved = Moved(model)
    for _ in range(3):
        x = torch.randn(16, 6)
        with torch.no_grad():
            confidence, label = model(x).softmax(-1).max(dim=-1)
        losses = nn.functional.cross_entropy(model(x * 1.1), label, reduction="none")
        optimizer.zero_grad()
        (losses * (confidence > 0.4)).mean().backward()
        optimizer.step()
    assert moved.all()


def contrast_with_a_momentum_encoder() -> None:
    query, key = nn.Linear(6, 4), nn.Linear(6, 4)
    key.load_state_dict(query.state_dict())
    for parameter in key.parameters():
        parameter.requires_grad = False
    queue = torch.randn(12, 4)
    optimizer = torch.optim.SGD(query.parameters(), lr=0.1)
    moved, followed = Moved([query.weight]), Moved([key.weight])
    for _ in range(3):
        x = torch.randn(8, 6)
        q = nn.functional.normalize(query(x), dim=1)
        with torch.no_grad():
            for slow, fast in zip(key.parameters(), query.parameters(), strict=True):
                slow.data = slow.data * 0.9 + fast.data * 0.1
            k = nn.functional.normalize(key(x + 0.1), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], dim=1)
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits / 0.2, torch.zeros(8, dtype=torch.long)).backward()
        optimizer.step()
        queue = torch.cat([k, queue])[:12]
    assert moved.all() and followed.all()


def twins_with_a_stopped_gradient() -> None:
    encoder, predictor = nn.Linear(6, 4), nn.Linear(4, 4)
    optimizer = torch.optim.SGD([*encoder.parameters(), *predictor.parameters()], lr=0.1)
    moved = Moved([*encoder.parameters(), *predictor.parameters()])
    cosine = nn.functional.cosine_similarity
    for _ in range(3):
        x = torch.randn(8, 6)
        one, two = encoder(x + 0.1), encoder(x - 0.1)
        loss = -cosine(predictor(one), two.detach()).mean()
        loss = loss - cosine(predictor(two), one.detach()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert moved.all()


def variational_autoencoder_with_rsample() -> None:
    encoder, decoder = nn.Linear(6, 4), nn.Linear(2, 6)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.01)
    moved = Moved([*encoder.parameters(), *decoder.parameters()])
    x = torch.randn(16, 6)
    for _ in range(3):
        mean, log_scale = encoder(x).chunk(2, dim=-1)
        latent = Normal(mean, log_scale.exp())
        loss = nn.functional.mse_loss(decoder(latent.rsample()), x)
        loss = loss + torch.distributions.kl_divergence(latent, Normal(0, 1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert moved.all()


def losses_weighed_by_their_own_size() -> None:
    trunk, left, right = nn.Linear(6, 4), nn.Linear(4, 1), nn.Linear(4, 1)
    parameters = [*trunk.parameters(), *left.parameters(), *right.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    moved = Moved(parameters)
    x, target = regression()
    for _ in range(3):
        hidden = trunk(x)
        first = nn.functional.mse_loss(left(hidden), target)
        second = nn.functional.smooth_l1_loss(right(hidden), target)
        optimizer.zero_grad()
        (first / first.item() + second / second.detach()).backward()
        optimizer.step()
    assert moved.all()


def knowledge_distilled_from_a_frozen_teacher() -> None:
    teacher, student = nn.Linear(6, 3).eval(), nn.Linear(6, 3)
    optimizer = torch.optim.Adam(student.parameters(), lr=0.05)
    moved, kept = Moved(student), Moved(teacher)
    for _ in range(3):
        x = torch.randn(8, 6)
        with torch.inference_mode():
            wanted = teacher(x).softmax(-1)
        loss = nn.functional.kl_div(
            student(x).log_softmax(-1), wanted.clone(), reduction="batchmean"
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert moved.all() and kept.none()


def layers_with_losses_of_their_own() -> None:
    """Each layer learns from a loss right behind it; nothing flows back between layers."""
    layers = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)])
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    moved = Moved(layers)
    for _ in range(3):
        hidden = torch.randn(8, 6)
        optimizer.zero_grad()
        for layer in layers:
            hidden = torch.relu(layer(hidden.detach()))
            (hidden.square().mean() - 1).square().backward()
        optimizer.step()
    assert moved.all()


def temperature_learned_from_detached_entropies() -> None:
    policy, log_temperature = nn.Linear(6, 3), nn.Parameter(torch.zeros(()))
    for_policy = torch.optim.Adam(policy.parameters(), lr=0.01)
    for_temperature = torch.optim.Adam([log_temperature], lr=0.01)
    moved = Moved([*policy.parameters(), log_temperature])
    for _ in range(4):
        choice = Categorical(logits=policy(torch.randn(8, 6)))
        entropy = choice.entropy()
        temperature = log_temperature.exp().item()
        value = (choice.probs * torch.randn(8, 3)).sum(dim=1)
        for_policy.zero_grad()
        (-(value + temperature * entropy).mean()).backward()
        for_policy.step()
        for_temperature.zero_grad()
        (log_temperature * (entropy - 1.0).detach()).mean().backward()
        for_temperature.step()
    assert moved.all()


def tokens_generated_first_and_scored_again() -> None:
    model = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    moved = Moved(model)
    for _ in range(3):
        tokens = torch.randint(0, 12, (6, 2))
        with torch.no_grad():
            for _ in range(3):
                odds = model(tokens[:, -1:]).softmax(-1)[:, 0]
                tokens = torch.cat([tokens, torch.multinomial(odds, 1)], dim=1)
        reward = (tokens % 2).float().mean(dim=1)
        scores = model(tokens[:, :-1]).log_softmax(-1)
        said = scores.gather(2, tokens[:, 1:, None]).sum(dim=(1, 2))
        optimizer.zero_grad()
        (-(said * (reward - reward.mean())).mean()).backward()
        optimizer.step()
    assert moved.all()
