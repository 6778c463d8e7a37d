"""Public checkpoints of drafts, as configs and tensor lists in our own words: only facts that tell a kind.

Rows name where the facts were read. `half`: the table of kinds was developed on one half; the other was tried
once, after the table was finished (LOG.md has its score). Of later rows, what is right was decided before the
product read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MIDLAYER = tuple(
    f"midlayer.{part}.weight"
    for part in (
        "hidden_norm", "input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj",
        "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
    )
)  # fmt: skip
SPECFORGE = "https://github.com/sgl-project/SpecForge"


TARGET = ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight")
USUAL = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.q_norm", "mlp.up_proj", "input_layernorm")


def layers(count: int, *parts: str, prefix: str = "layers.") -> tuple[str, ...]:
    parts = parts or USUAL
    return tuple(f"{prefix}{number}.{part}.weight" for number in range(count) for part in parts)


EAGLE3 = (*MIDLAYER, "fc.weight", "norm.weight", "lm_head.weight", "d2t", "t2d")
MARKOV = ("markov_head.markov_w1.weight", "markov_head.markov_w2.weight", "confidence_head.proj.weight")
BLOCK = ("fc.weight", "hidden_norm.weight", "norm.weight", *layers(5))


@dataclass(frozen=True)
class PublicHead:
    name: str
    half: str
    source: str
    config: Mapping[str, Any]
    tensors: Iterable[str]
    kind: str
    tokens: int | None = None
    engine: str = "vllm"
    version: str = "0.33.0"
    does: str = "works"
    method: str | None = None
    is_target: bool = False
    gguf: bool = False
    architecture_known: bool | None = None
    """Whether the release has a class for its architecture; None: not asked."""


HEADS = (
    PublicHead(
        "LongCat-Flash EAGLE-3", "development", f"{SPECFORGE}: configs/longcat-flash-eagle3.json",
        {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1,
         "hidden_size": 6144, "vocab_size": 131072, "draft_vocab_size": 131072},
        EAGLE3, "eagle3", method="eagle3", architecture_known=True,
    ),
    PublicHead(
        "DeepSeek-V4-Flash-DSpark", "development", "https://github.com/antirez/ds4/issues/468",
        {"architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "num_hidden_layers": 2,
         "num_nextn_predict_layers": 3, "dspark_block_size": 5, "dspark_target_layer_ids": [40, 41, 42]},
        ("embed.weight", "head.weight", *layers(2, "attn.wq_a", "ffn.gate", "attn_norm"),
         *layers(3, "main_proj", "main_norm", "attn.wq_a", "hc_attn_fn", prefix="mtp."),
         "mtp.2.markov_head.markov_w1.weight", "mtp.2.confidence_head.proj.weight"),
        "dspark", 5, method="dspark", is_target=True,
    ),
    PublicHead(
        "Qwen3-30B-A3B EAGLE-3.1", "development", f"{SPECFORGE}: configs/qwen3-30B-A3B-eagle3.1.json",
        {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1,
         "fc_norm": True, "norm_output": True, "draft_vocab_size": 32000},
        (*EAGLE3, "fc_norm.0.weight", "fc_norm.1.weight", "fc_norm.2.weight"),
        "eagle3_1", engine="sglang", version="0.5.12", method="EAGLE3", architecture_known=True,
    ),
    PublicHead(
        "EAGLE-3 of vLLM's speculators", "development", "https://github.com/pytorch/executorch/pull/20149",
        {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": 32000,
         "speculators_config": {"proposal_methods": [{"speculative_tokens": 3}],
                                "verifier": {"name_or_path": "org/target"}},
         "transformer_layer_config": {"model_type": "llama", "num_hidden_layers": 1}},
        (*layers(1, "hidden_norm", "self_attn.q_proj", "mlp.up_proj"), "embed_tokens.weight", "fc.weight",
         "norm.weight", "lm_head.weight", "d2t", "t2d"),
        "eagle3", 3, method="eagle3", architecture_known=True,
    ),
    PublicHead(
        "layerskip-llama3.2-1B, as its own draft", "development",
        "https://github.com/facebookresearch/LayerSkip/issues/15",
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2},
        ("model.embed_tokens.weight", "model.norm.weight", *layers(2, prefix="model.layers.")),
        "independent", method="draft_model", is_target=True,  # nothing in its files tells the training
    ),
    PublicHead(
        "FastMTP of MiMo, speculators format", "development",
        "https://github.com/vllm-project/speculators/pull/301 and src/speculators/models/mtp",
        {"architectures": ["MTPDraftModel"], "speculators_model_type": "mtp", "num_nextn_predict_layers": 1,
         "speculators_config": {"proposal_methods": [{"speculative_tokens": 3}],
                                "verifier": {"name_or_path": "XiaomiMiMo/MiMo-7B"}},
         "transformer_layer_config": {"model_type": "qwen2", "num_hidden_layers": 1}},
        layers(1, "input_proj", "hidden_layernorm", "token_layernorm", "final_layernorm", "self_attn.q_proj",
               prefix="mtp_layers."),
        "mtp", 3, method="mtp",
    ),
    PublicHead(
        "gpt-oss-20B EAGLE-3 with experts", "development",
        f"{SPECFORGE}: configs/gpt-oss-20B-eagle3-moe.json",
        {"architectures": ["GptOssForCausalLMEagle3"], "model_type": "gpt_oss", "num_hidden_layers": 1,
         "draft_vocab_size": 32000, "num_local_experts": 16},
        (*EAGLE3, "midlayer.mlp.router.weight", "midlayer.mlp.experts.gate_up_proj"),
        "eagle3", method="eagle3", architecture_known=False,
    ),
    PublicHead(
        "Qwen3-8B EDSD", "development", f"{SPECFORGE}: configs/qwen3-8b-edsd.json, modeling/draft/edsd.py",
        {"architectures": ["EdsdDraftModel"], "model_type": "llama", "num_hidden_layers": 1,
         "draft_vocab_size": 32000, "target_layer_ids": [23, 34]},
        (*EAGLE3, "edfuse.gate_proj.weight", "edfuse.up_proj.weight", "embnorm.weight"),
        "unknown", does="unknown",
    ),
    PublicHead(
        "Kimi K3 DSpark", "development", f"{SPECFORGE}: configs/kimi-k3-dspark.json",
        {"architectures": ["DSparkDraftModel"], "model_type": "qwen3", "num_hidden_layers": 5,
         "block_size": 7,
         "dflash_config": {"projector_type": "dspark", "markov_rank": 256}},
        (*BLOCK, *MARKOV),
        "dspark", 7, method="dspark",
    ),
    PublicHead(
        "GLM-4.7-Flash, only its MTP layer, GGUF", "development",
        "https://github.com/ggml-org/llama.cpp/pull/24868",
        {"architectures": ["Deepseek2ForCausalLM"], "num_hidden_layers": 48, "num_nextn_predict_layers": 1},
        ("token_embd.weight", "output_norm.weight", "output.weight", "blk.47.nextn.eh_proj.weight",
         "blk.47.nextn.enorm.weight", "blk.47.nextn.hnorm.weight", "blk.47.nextn.shared_head_norm.weight",
         "blk.47.attn_q_a.weight", "blk.47.ffn_gate_exps.weight"),
        "mtp", 1, engine="llamacpp", version="b11549", method="draft-mtp", gguf=True,
    ),
    PublicHead(
        "Qwen3.6-27B DFlash2", "development", f"{SPECFORGE}: configs/qwen3.6-27b-dflash2.json",
        {"architectures": ["DFlash2DraftModel"], "model_type": "qwen3", "num_hidden_layers": 5,
         "dflash_config": {"block_size": 8, "conv_kernel_size": 2, "selector_rank": 256}},
        (*BLOCK, *layers(5, "attention_conv.kernel_projection", "mlp_conv.kernel_projection"),
         "layers.0.attention_conv.base_kernel", "candidate_selector.predecessor_codebook",
         "candidate_selector.successor_codebook", "candidate_selector.hidden_projection.weight"),
        "dflash2", 7, engine="sglang", version="0.5.23", method="DFLASH", architecture_known=True,
    ),
    PublicHead(
        "GLM-5.2 DSpark", "development", f"{SPECFORGE}: configs/glm-5.2-dspark.json",
        {"architectures": ["DSparkDraftModel"], "model_type": "qwen3", "num_hidden_layers": 5,
         "block_size": 7,
         "dspark_config": {"markov_rank": 256}},
        (*BLOCK, *MARKOV),
        "dspark", 7, engine="sglang", version="0.5.15", does="refused",
    ),
    PublicHead(
        "Mistral-7B-Instruct-v0.2-medusa", "development", "https://github.com/NVIDIA/TensorRT-LLM/issues/1171",
        {"medusa_num_heads": 3, "medusa_num_layers": 1},
        [f"{head}.{part}" for head in range(3) for part in ("0.linear.weight", "0.linear.bias", "1.weight")],
        "medusa", 3, version="0.32.0", method="medusa",
    ),
    PublicHead(
        "Gemma 3 1B EAGLE-3", "development", f"{SPECFORGE}: configs/gemma3-1b-eagle3.json",
        {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1,
         "vocab_size": 262145, "draft_vocab_size": 32000, "target_model_type": "gemma3_text"},
        EAGLE3, "eagle3", engine="llamacpp", version="b11549", method="draft-eagle3",
    ),
    PublicHead(
        "Qwen3-8B P-EAGLE of SpecForge", "development", f"{SPECFORGE}: configs/qwen3-8b-peagle.json",
        {"architectures": ["PEagleDraftModel"], "model_type": "llama", "num_hidden_layers": 4,
         "draft_vocab_size": 151936},
        ("layers.0.hidden_norm.weight", *layers(4, "self_attn.q_proj", "mlp.up_proj", "input_layernorm"),
         "mask_hidden", "fc.weight", "embed_tokens.weight", "norm.weight", "lm_head.weight", "d2t", "t2d"),
        "p_eagle", does="needs_setting", method="eagle3", architecture_known=False,
    ),
    # --- tried once ---------------------------------------------------------------------------
    PublicHead(
        "DeepSeek-V3 671B EAGLE-3", "held out", f"{SPECFORGE}: configs/deepseek-v3-671b-eagle3.json",
        {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1,
         "draft_vocab_size": 32000, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 29, 57]}},
        EAGLE3, "eagle3", method="eagle3", architecture_known=True,
    ),
    PublicHead(
        "Qwen3.5-122B-A10B with its MTP layer, GGUF", "held out",
        "https://github.com/ggml-org/llama.cpp/pull/20533",
        {"architectures": ["Qwen35moeForCausalLM"], "num_hidden_layers": 3, "num_nextn_predict_layers": 1},
        ("token_embd.weight", "output.weight", "output_norm.weight",
         *layers(3, "attn_q", "ffn_gate_exps", "attn_norm", prefix="blk."), "blk.2.nextn.eh_proj.weight",
         "blk.2.nextn.enorm.weight", "blk.2.nextn.hnorm.weight", "blk.2.nextn.shared_head_norm.weight"),
        "mtp", 1, engine="llamacpp", version="b11549", method="draft-mtp", is_target=True, gguf=True,
    ),
    PublicHead(
        "DeepSeek-V4-Flash DSpark, its three stages alone", "held out",
        f"{SPECFORGE}: configs/deepseek-v4-flash-dspark-official.json, modeling/draft/dspark_v4.py",
        {"architectures": ["DSparkV4DraftModel"], "model_type": "deepseek_v4_dspark_draft",
         "num_hidden_layers": 3, "block_size": 5, "dflash_config": {"projector_type": "dspark_v4"}},
        (*layers(3, "attn.wq_a", "attn.wkv", "ffn.gate", "attn_norm", prefix="mtp."),
         "mtp.0.main_proj.weight", "mtp.0.main_norm.weight", "mtp.2.markov_head.markov_w1.weight",
         "mtp.2.markov_head.markov_w2.weight", "mtp.2.confidence_head.proj.weight", "mtp.2.norm.weight"),
        "dspark", 5, method="dspark",
    ),
    PublicHead(
        "Laguna-S-2.1 DFlash, GGUF", "held out", "https://github.com/charlie12345/ROCmFPX/issues/44",
        {"architectures": ["DFlashDraftModel"], "num_hidden_layers": 6},
        ("fc.weight", "enc.output_norm.weight", "enc.aux_norm.weight", "output_norm.weight",
         *layers(6, "attn_q", "attn_gate", "attn_norm", "ffn_up", prefix="blk.")),
        "unknown", engine="llamacpp", version="b11549", does="unknown", gguf=True,
        # b11549 has no place for enc.aux_norm: a no would be better than an unknown
    ),
    PublicHead(
        "Hydra heads for Vicuna", "held out", "https://github.com/zankner/Hydra (HydraMLP)",
        {"hydra_num_heads": 4, "hydra_num_layers": 1, "grounded_heads": True, "hydra_head_arch": "mlp"},
        [f"{name}.{head}{part}" for head in range(4)
         for name, part in (("hydra_mlp", ".0.linear.weight"), ("hydra_lm_head", ".weight"))],
        "hydra", 4, does="refused",
    ),
    PublicHead(
        "LFM2.5-1.2B DFlash", "held out", f"{SPECFORGE}: configs/lfm2.5-1.2b-instruct-dflash.json",
        {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "num_hidden_layers": 8,
         "block_size": 16, "dflash_config": {"target_layer_ids": [1, 4, 7, 10, 13]}},
        ("fc.weight", "hidden_norm.weight", "norm.weight", *layers(8)), "dflash", 15, method="dflash",
        architecture_known=True,
    ),
    PublicHead(
        "Qwen3-8B Domino", "held out", f"{SPECFORGE}: configs/qwen3-8b-domino.json, modeling/draft/domino.py",
        {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "num_hidden_layers": 5,
         "block_size": 16, "dflash_config": {"projector_type": "domino", "emb_dim": 256}},
        (*BLOCK, "prefix_gru.weight_ih_l0", "prefix_gru.weight_hh_l0", "embed_proj.0.weight",
         "embed_proj.2.weight"),
        "domino", 15, engine="sglang", version="0.5.23", method="DFLASH", architecture_known=True,
    ),
    PublicHead(
        "Laguna-XS-2.1 DFlash", "held out", "https://github.com/lablup/mlxcel/issues/1351",
        {"architectures": ["LagunaForCausalLM"], "model_type": "laguna", "num_hidden_layers": 5,
         "dflash_config": {"block_size": 8}},
        ("fc.weight", "hidden_norm.weight", "norm.weight",
         *layers(5, "self_attn.qkv_proj", "self_attn.g_proj", "self_attn.q_norm", "mlp.up_proj"),
         *(f"aux_hidden_norms.{number}.weight" for number in range(5))),
        "dflash", 7, method="dflash", architecture_known=True,
    ),
    PublicHead(
        "Qwen3-8B DSpine", "held out", f"{SPECFORGE}: configs/qwen3-8b-dspine.json, modeling/draft/dspine.py",
        {"architectures": ["DSpineDraftModel"], "model_type": "qwen3", "num_hidden_layers": 5,
         "block_size": 16, "dspine_config": {"transfer_rank": 1024}},
        (*BLOCK, "injection.readouts.0.weight", "injection.writes.0.weight", "injection.message.weight",
         "transfer_codes", "transfer_ready"),
        "unknown", does="unknown",
    ),
    PublicHead(
        "granite-3b-code-instruct-accelerator, tied", "held out",
        "https://github.com/huggingface/text-generation-inference/pull/2473",
        {"architectures": ["MLPSpeculatorPreTrainedModel"], "model_type": "mlp_speculator", "n_predict": 5,
         "tie_weights": True},
        ("speculator.emb.0.weight", "speculator.proj.0.weight", "speculator.proj.1.weight",
         "speculator.head.0.weight", "speculator.ln.0.weight", "speculator.ln.0.bias"),
        "mlp_speculator", 5, version="0.9.2", method="mlp_speculator",
    ),
    PublicHead(
        "Qwen3-8B DSpark with 32,000 tokens", "held out",
        f"{SPECFORGE}: configs/qwen3-8b-dspark-draftvocab32k.json",
        {"architectures": ["DSparkDraftModel"], "model_type": "qwen3", "num_hidden_layers": 5,
         "block_size": 7, "draft_vocab_size": 32000},
        (*BLOCK, *MARKOV, "lm_head.weight", "d2t", "t2d"), "dspark", 7, method="dspark",
    ),
    PublicHead(
        "Qwen3.5-4B MTP, trained apart", "held out",
        f"{SPECFORGE}: configs/qwen3.5-4b-mtp.json, modeling/draft/mtp/qwen3_5.py",
        {"architectures": ["Qwen3_5MTPDraftModel"], "model_type": "qwen3", "num_hidden_layers": 1},
        ("embed_tokens.weight", "mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight",
         "mtp.fc.weight", *layers(1, prefix="mtp.layers."), "mtp.norm.weight", "mtp.lm_head.weight"),
        "mtp", method="mtp",
    ),
    PublicHead(
        "gemma-4-E2B-it-assistant, GGUF", "held out", "https://github.com/ggml-org/llama.cpp/pull/22738",
        {"architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4-assistant",
         "num_hidden_layers": 4},
        ("token_embd.weight", "output_norm.weight", "nextn.pre_projection.weight", "rope_freqs.weight",
         "nextn.post_projection.weight", "masked_embd_centroids.weight", "masked_embd_ordering",
         *layers(4, "attn_q", "attn_output", "attn_q_norm", "layer_output_scale", prefix="blk.")),
        "gemma4_assistant", engine="llamacpp", version="b11549", method="draft-mtp", gguf=True,
    ),
    PublicHead(
        "Kimi-K2.6 EAGLE-3, latent attention, no output head", "held out",
        "https://github.com/sgl-project/sglang/pull/27908",
        {"architectures": ["Eagle3DeepseekV2ForCausalLM"], "num_hidden_layers": 1,
         "draft_vocab_size": 163840, "vocab_size": 163840, "tie_word_embeddings": False},
        (*layers(1, "hidden_norm", "self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa", "mlp.up_proj"),
         "fc.weight", "norm.weight", "embed_tokens.weight"),
        "eagle3", engine="sglang", version="0.5.23", method="EAGLE3", architecture_known=True,
    ),
    PublicHead(
        "PARD-2", "held out", "https://github.com/vllm-project/vllm/pull/55257",
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2,
         "pard_token": 128256},
        ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight",
         *layers(2, prefix="model.layers.")),
        "pard", does="needs_setting", method="draft_model",
    ),
    PublicHead(
        "Vicuna with Medusa heads in its own files", "later", "https://github.com/FasterDecoding/Medusa",
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2,
         "medusa_num_heads": 3, "medusa_num_layers": 1},
        (*TARGET, *layers(2, prefix="model.layers."),
         *(f"medusa_head.{head}.{part}.weight" for head in range(3) for part in ("0.linear", "1"))),
        "medusa", 3, is_target=True, does="refused",
    ),
    PublicHead(
        "Arctic LSTM speculator", "later", "https://github.com/snowflakedb/ArcticInference",
        {"architectures": ["MLPVariantSpeculatorPreTrainedModel"], "model_type": "mlp_speculator",
         "n_predict": 3, "method": "sum_lstm"},
        ("cell_ln.0.weight", "forget_emb.0.weight", "input_emb.0.weight", "output_emb.0.weight",
         "projs.0.weight", "state_ln.0.weight", "head.0.weight"),
        "unknown", 3, does="unknown",
    ),
    PublicHead(
        "ReDrafter", "later", "https://github.com/apple/ml-recurrent-drafter",
        {"architectures": ["RecurrentDraftingModel"], "num_draft_layers": 2},
        ("input_projs.weight", "lm_heads.0.linear.weight", "lm_heads.1.linear.weight", "lm_heads.2.weight",
         "rnn_u.weight", "rnn_w.weight"),
        "unknown", does="unknown",
    ),
    PublicHead(
        "GLM-4.5-Air", "later",
        "https://github.com/vllm-project/vllm: vllm/model_executor/models/glm4_moe_mtp.py",
        {"architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "num_hidden_layers": 2,
         "num_nextn_predict_layers": 1},
        (*TARGET, *layers(2, prefix="model.layers."),
         *(f"model.layers.2.{part}.weight" for part in ("eh_proj", "enorm", "hnorm", "shared_head.norm",
                                                        "embed_tokens", "self_attn.q_proj", "mlp.gate"))),
        "mtp", 1, is_target=True, method="mtp",
    ),
    PublicHead(
        "Nemotron-3-Super", "later",
        "https://github.com/vllm-project/vllm: vllm/model_executor/models/nemotron_h_mtp.py",
        {"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "num_hidden_layers": 2,
         "num_nextn_predict_layers": 1},
        ("backbone.embeddings.weight", "backbone.norm_f.weight", "lm_head.weight",
         *layers(2, "mixer.in_proj", "norm", prefix="backbone.layers."),
         *(f"mtp.layers.{part}.weight" for part in ("0.eh_proj", "0.enorm", "0.hnorm", "0.mixer.q_proj",
                                                    "1.mixer.gate", "1.final_layernorm"))),
        "mtp", 1, is_target=True, method="mtp",
    ),
    PublicHead(
        "Mistral-Large-3 EAGLE, in Mistral's names", "later",
        "https://github.com/vllm-project/vllm: vllm/model_executor/models/mistral_large_3_eagle.py",
        {"architectures": ["EagleMistralLarge3ForCausalLM"], "model_type": "eagle", "num_hidden_layers": 2},
        ("eagle_linear.weight", "norm.weight",
         *layers(2, "attention.wq_a", "attention.wkv_a_with_mqa", "feed_forward.w1", "attention_norm")),
        "unknown", does="unknown",  # vLLM loads it as an EAGLE head; the table has no such names
    ),
    PublicHead(
        "MiMo-V2-Flash", "later",
        "https://github.com/sgl-project/sglang: python/sglang/srt/models/mimo_v2_flash_nextn.py",
        {"architectures": ["MiMoV2FlashForCausalLM"], "model_type": "mimo_v2_flash", "num_hidden_layers": 2,
         "num_nextn_predict_layers": 3},
        (*TARGET, *layers(2, prefix="model.layers."),
         *layers(3, "eh_proj", "enorm", "hnorm", "final_layernorm", "self_attn.qkv_proj", "mlp.up_proj",
                 prefix="model.mtp.layers.")),
        "mtp", 3, is_target=True, method="NEXTN", engine="sglang", version="0.5.23",
    ),
    PublicHead(
        "ERNIE-4.5-21B-A3B", "later",
        "https://github.com/vllm-project/vllm: vllm/model_executor/models/ernie_mtp.py",
        {"architectures": ["Ernie4_5_MoeForCausalLM"], "model_type": "ernie4_5_moe", "num_hidden_layers": 2,
         "num_nextn_predict_layers": 1},
        (*TARGET, *layers(2, prefix="model.layers."), "model.mtp_linear_proj.0.weight",
         "model.mtp_emb_norm.0.weight", "model.mtp_hidden_norm.0.weight",
         *layers(1, prefix="model.mtp_block.")),
        "mtp", 1, is_target=True, method="mtp",
    ),
)  # fmt: skip
