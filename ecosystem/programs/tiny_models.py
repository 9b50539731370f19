"""Models of transformers, a few thousand parameters each, random weights: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers

Batch = dict[str, Any]
VOCABULARY = 64
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
BLOCKS = SIZES | {"intermediate_size": 37}
TEXT = BLOCKS | {"vocab_size": VOCABULARY, "max_position_embeddings": 32}
GROUPED = TEXT | {"num_key_value_heads": 2}
IMAGE = BLOCKS | {"image_size": 16, "patch_size": 4}
ENCODER_DECODER = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 37,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
T5 = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 37,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, shape)


def classes(*shape: int) -> torch.Tensor:
    return torch.randint(0, 2, shape)


def language() -> Batch:
    return {"input_ids": tokens(2, 8), "labels": tokens(2, 8)}


def sentences() -> Batch:
    mask = torch.tensor([[1] * 8, [1] * 5 + [0] * 3])
    return {"input_ids": tokens(2, 8), "attention_mask": mask, "labels": classes(2)}


def tagged() -> Batch:
    return {"input_ids": tokens(2, 8), "labels": classes(2, 8)}


def answers() -> Batch:
    start = torch.tensor([1, 2])
    return {"input_ids": tokens(2, 8), "start_positions": start, "end_positions": start + 2}


def images() -> Batch:
    return {"pixel_values": torch.randn(2, 3, 16, 16), "labels": classes(2)}


def bare_images() -> Batch:
    return {"pixel_values": torch.randn(2, 3, 16, 16)}


def segmented() -> Batch:
    return {"pixel_values": torch.randn(2, 3, 32, 32), "labels": classes(2, 32, 32)}


def captioned() -> Batch:
    return {"input_ids": tokens(2, 8), "pixel_values": torch.randn(2, 3, 16, 16)}


def boxed() -> Batch:
    labels = [
        {"class_labels": classes(2), "boxes": torch.rand(2, 4) * 0.4 + 0.1},
        {"class_labels": classes(1), "boxes": torch.rand(1, 4) * 0.4 + 0.1},
    ]
    return {"pixel_values": torch.randn(2, 3, 64, 64), "labels": labels}


def spoken() -> Batch:
    return {"input_values": torch.randn(2, 640), "labels": torch.randint(3, 30, (2, 4))}


def transcribed() -> Batch:
    return {"input_features": torch.randn(2, 8, 20), "labels": tokens(2, 7)}


@dataclass(frozen=True)
class TinyModel:
    """How to make one: the config's name and values, the model's name, and a batch."""

    config: str
    model: str
    values: Batch
    batch: Callable[[], Batch]

    def configuration(self) -> Any:
        return getattr(transformers, self.config)(**self.values)

    def make(self) -> Any:
        return getattr(transformers, self.model)(self.configuration())


MODELS = {
    # encoders
    "bert": TinyModel("BertConfig", "BertForMaskedLM", TEXT, language),
    "roberta": TinyModel("RobertaConfig", "RobertaForTokenClassification", TEXT, tagged),
    "albert": TinyModel(
        "AlbertConfig", "AlbertForQuestionAnswering", TEXT | {"embedding_size": 16}, answers
    ),
    "electra": TinyModel(
        "ElectraConfig", "ElectraForPreTraining", TEXT | {"embedding_size": 16}, tagged
    ),
    "deberta-v2": TinyModel(
        "DebertaV2Config",
        "DebertaV2ForMaskedLM",
        TEXT | {"relative_attention": True, "pos_att_type": "p2c|c2p", "position_buckets": 8},
        language,
    ),
    "distilbert": TinyModel(
        "DistilBertConfig",
        "DistilBertForSequenceClassification",
        {"vocab_size": VOCABULARY, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 37},
        sentences,
    ),
    # decoders
    "gpt2": TinyModel(
        "GPT2Config",
        "GPT2LMHeadModel",
        {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32},
        language,
    ),
    "llama": TinyModel("LlamaConfig", "LlamaForCausalLM", GROUPED, language),
    "mistral": TinyModel("MistralConfig", "MistralForCausalLM", GROUPED, language),
    "qwen2": TinyModel("Qwen2Config", "Qwen2ForCausalLM", GROUPED, language),
    "gemma2": TinyModel("Gemma2Config", "Gemma2ForCausalLM", GROUPED | {"head_dim": 8}, language),
    "mixtral": TinyModel(
        "MixtralConfig",
        "MixtralForCausalLM",
        GROUPED | {"intermediate_size": 48, "num_local_experts": 4, "output_router_logits": True},
        language,
    ),
    "opt": TinyModel(
        "OPTConfig",
        "OPTForCausalLM",
        SIZES
        | {"vocab_size": VOCABULARY, "ffn_dim": 37, "word_embed_proj_dim": 32, "layerdrop": 0.3},
        language,
    ),
    "mamba": TinyModel(
        "MambaConfig",
        "MambaForCausalLM",
        {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
        language,
    ),
    # encoders with decoders
    "t5": TinyModel("T5Config", "T5ForConditionalGeneration", T5, language),
    "switch": TinyModel(
        "SwitchTransformersConfig",
        "SwitchTransformersForConditionalGeneration",
        T5 | {"num_experts": 16, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1},
        language,
    ),
    "bart": TinyModel("BartConfig", "BartForConditionalGeneration", ENCODER_DECODER, language),
    # sound
    "whisper": TinyModel(
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        ENCODER_DECODER
        | {"num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 16},
        transcribed,
    ),
    "wav2vec2": TinyModel(
        "Wav2Vec2Config",
        "Wav2Vec2ForCTC",
        BLOCKS
        | {
            "vocab_size": 32,
            "conv_dim": (16, 16),
            "conv_stride": (4, 4),
            "conv_kernel": (8, 8),
            "num_conv_pos_embeddings": 8,
            "num_conv_pos_embedding_groups": 2,
            "mask_time_length": 2,
        },
        spoken,
    ),
    # pictures
    "vit": TinyModel("ViTConfig", "ViTForImageClassification", IMAGE, images),
    "vit-mae": TinyModel(
        "ViTMAEConfig",
        "ViTMAEForPreTraining",
        IMAGE
        | {
            "decoder_hidden_size": 32,
            "decoder_num_hidden_layers": 1,
            "decoder_num_attention_heads": 4,
            "decoder_intermediate_size": 37,
        },
        bare_images,
    ),
    "clip": TinyModel(
        "CLIPConfig",
        "CLIPModel",
        {
            "text_config": TEXT | {"bos_token_id": 1, "eos_token_id": 2},
            "vision_config": IMAGE,
            "projection_dim": 16,
            "return_dict": True,
        },
        lambda: captioned() | {"return_loss": True},
    ),
    "swin": TinyModel(
        "SwinConfig",
        "SwinForImageClassification",
        {
            "image_size": 16,
            "patch_size": 2,
            "embed_dim": 16,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 2,
        },
        images,
    ),
    "convnext": TinyModel(
        "ConvNextConfig",
        "ConvNextForImageClassification",
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "patch_size": 2},
        images,
    ),
    "segformer": TinyModel(
        "SegformerConfig",
        "SegformerForSemanticSegmentation",
        {
            "num_encoder_blocks": 2,
            "depths": [1, 1],
            "sr_ratios": [2, 1],
            "hidden_sizes": [8, 16],
            "patch_sizes": [3, 3],
            "strides": [2, 2],
            "num_attention_heads": [1, 2],
            "mlp_ratios": [2, 2],
            "decoder_hidden_size": 16,
        },
        segmented,
    ),
    "detr": TinyModel(
        "DetrConfig",
        "DetrForObjectDetection",
        {
            "d_model": 32,
            "encoder_layers": 1,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 37,
            "decoder_ffn_dim": 37,
            "num_queries": 6,
            "num_labels": 2,
            "auxiliary_loss": True,
            "use_timm_backbone": False,
            "use_pretrained_backbone": False,
            "backbone_config": transformers.ResNetConfig(
                embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], out_features=["stage2"]
            ),
        },
        boxed,
    ),
}
