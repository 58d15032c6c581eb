"""The thirty models of real_models.py at sizes at which computing dominates: a run takes some 1 to 60 ms on one processor.

LARGE maps each name of THIRTY to a function of torch that makes a module and its inputs. Weights are random, with a fixed seed.
The networks of torchvision are complete; the others have two to four layers of width 256 or more. tests/bench/model_times.py
measures them.
"""
from real_models import config, decoder, deeplab, language, of_torchvision, of_transformers, ssd_head, without_head

LENGTH = 128  # tokens of a text
SIZES = {"vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 1024}


# ---- models that need only PyTorch ----

def u_net(torch):
    nn = torch.nn

    def block(inputs, outputs):
        layers = []
        for inside, outside in ((inputs, outputs), (outputs, outputs)):
            layers += [nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU()]
        return nn.Sequential(*layers)

    class Model(nn.Module):
        def __init__(self, widths=(16, 32, 64)):
            super().__init__()
            self.down = nn.ModuleList(block(inside, outside) for inside, outside in zip((3, *widths), widths))
            self.rise = nn.ModuleList(nn.ConvTranspose2d(wide, narrow, 2, stride=2) for narrow, wide in zip(widths, widths[1:]))
            self.up = nn.ModuleList(block(2 * width, width) for width in widths[:-1])
            self.out = nn.Conv2d(widths[0], 2, 1)

        def forward(self, x):
            levels = []
            for down in self.down:
                x = down(nn.functional.max_pool2d(x, 2) if levels else x)
                levels.append(x)
            for level in reversed(range(len(self.up))):
                x = self.up[level](torch.cat([levels[level], self.rise[level](x)], 1))
            return self.out(x)

    return Model(), (torch.randn(1, 3, 128, 128),)


def recurrent_language(torch, make, length):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.layers = torch.nn.Embedding(1000, 256), make(256, 256)
            self.head = torch.nn.Linear(256, 1000)

        def forward(self, tokens):
            return self.head(self.layers(self.tokens(tokens))[0])

    return Model(), (torch.randint(0, 1000, (4, length)),)


def recommendation(torch):
    """Like DLRM: 13 numbers through one MLP, bags of categories through embeddings, their products through another MLP."""
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.EmbeddingBag(10000, 64, mode=mode) for mode in ("sum", "mean", "max") * 4)
            self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 64),
                                        nn.ReLU())
            self.top = nn.Sequential(nn.Linear(64 + 78, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1),
                                     nn.Sigmoid())

        def forward(self, numbers, *bags):
            dense = self.bottom(numbers)
            rows = torch.stack([dense] + [table(bag) for table, bag in zip(self.tables, bags)], 1)
            products = torch.bmm(rows, rows.transpose(1, 2))
            first, second = torch.triu_indices(13, 13, 1)
            return self.top(torch.cat([dense, products[:, first, second]], 1))

    return Model(), (torch.randn(256, 13), *[torch.randint(0, 10000, (256, 1 + i % 4)) for i in range(12)])


# ---- models of torchvision and transformers ----

def tokens(torch):
    return (torch.randint(0, 1000, (1, LENGTH)),)


def tokens_and_states(torch):
    return torch.randint(0, 1000, (1, LENGTH)), torch.randn(1, LENGTH, 256)


def text(model, config_name, call="last_hidden_state", **more):
    return language(model, config_name, call, tokens, **{**SIZES, **more})


def generating(model, config_name, **more):
    return text(model, config_name, "logits", num_key_value_heads=4, use_cache=False, pad_token_id=0, **more)


def t5(transformers, **more):
    return transformers.T5Config(vocab_size=1000, d_model=256, d_kv=32, d_ff=1024, num_layers=4, num_heads=8, **more)


def whisper(transformers):
    return transformers.WhisperModel(transformers.WhisperConfig(
        vocab_size=1000, num_mel_bins=80, d_model=256, encoder_layers=4, decoder_layers=4, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=1024, decoder_ffn_dim=1024, max_source_positions=LENGTH,
        max_target_positions=LENGTH, use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1))


def wav2vec2(transformers):
    return transformers.Wav2Vec2Model(config(
        transformers, "Wav2Vec2Config", conv_dim=(128, 128, 128), conv_kernel=(10, 3, 2), conv_stride=(5, 4, 4),
        num_feat_extract_layers=3, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, **SIZES))


LARGE = {
    "ResNet-18": of_torchvision(lambda t: t.resnet18(), 224),
    "MobileNetV3 small": of_torchvision(lambda t: t.mobilenet_v3_small(), 224),
    "EfficientNet-B0": of_torchvision(lambda t: t.efficientnet_b0(), 160),
    "ConvNeXt tiny": of_torchvision(lambda t: t.convnext_tiny(), 96),
    "RegNet-Y": of_torchvision(lambda t: t.regnet_y_400mf(), 224),
    "ViT": of_torchvision(lambda t: without_head(t, image_size=160, num_layers=4, num_heads=8, hidden_dim=256, mlp_dim=1024),
                          160),
    "Swin tiny": of_torchvision(lambda t: t.swin_t(), 112),
    "U-Net": u_net,
    "DeepLabV3": lambda torch: deeplab(torch, 160),
    "SSD head": lambda torch: ssd_head(torch, ((256, 19), (512, 10), (256, 5)), (4, 6, 6), 21),
    "BERT": text("BertModel", "BertConfig"),
    "DistilBERT": of_transformers(lambda t: t.DistilBertModel(t.DistilBertConfig(
        vocab_size=1000, dim=256, n_layers=4, n_heads=8, hidden_dim=1024)), tokens, "last_hidden_state"),
    "RoBERTa": text("RobertaModel", "RobertaConfig", max_position_embeddings=256),
    "GPT-2": of_transformers(lambda t: t.GPT2LMHeadModel(t.GPT2Config(
        vocab_size=1000, n_positions=LENGTH, n_embd=384, n_layer=4, n_head=6, use_cache=False)), tokens, "logits"),
    "OPT": of_transformers(lambda t: t.OPTForCausalLM(t.OPTConfig(
        vocab_size=1000, hidden_size=256, word_embed_proj_dim=256, ffn_dim=1024, num_hidden_layers=4, num_attention_heads=8,
        max_position_embeddings=256, use_cache=False)), tokens, "logits"),
    "Llama": generating("LlamaForCausalLM", "LlamaConfig"),
    "Mistral": generating("MistralForCausalLM", "MistralConfig"),
    "Qwen2": generating("Qwen2ForCausalLM", "Qwen2Config"),
    "Gemma": generating("GemmaForCausalLM", "GemmaConfig", head_dim=32),
    "Phi": generating("PhiForCausalLM", "PhiConfig"),
    "T5 encoder": of_transformers(lambda t: t.T5EncoderModel(t5(t)), tokens, "last_hidden_state"),
    "T5 decoder": of_transformers(lambda t: t.T5Model(t5(t, use_cache=False)).decoder, tokens_and_states, decoder),
    "Whisper encoder": of_transformers(lambda t: whisper(t).encoder, lambda torch: (torch.randn(1, 80, 2 * LENGTH),),
                                       "last_hidden_state"),
    "Whisper decoder": of_transformers(lambda t: whisper(t).decoder, tokens_and_states, decoder),
    "CLIP text tower": text("CLIPTextModel", "CLIPTextConfig", max_position_embeddings=LENGTH, eos_token_id=999),
    "CLIP vision tower": of_transformers(lambda t: t.CLIPVisionModel(t.CLIPVisionConfig(
        hidden_size=256, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8, image_size=160, patch_size=16)),
        lambda torch: (torch.randn(1, 3, 160, 160),), "pooler_output"),
    "wav2vec2": of_transformers(wav2vec2, lambda torch: (torch.randn(1, 8000),), "last_hidden_state"),
    "LSTM language model": lambda torch: recurrent_language(
        torch, lambda width, hidden: torch.nn.LSTM(width, hidden, 2, batch_first=True), 64),
    "GRU": lambda torch: recurrent_language(
        torch, lambda width, hidden: torch.nn.GRU(width, hidden, 1, batch_first=True), 12),
    "recommendation": recommendation,
}


def build(torch, name):
    torch.manual_seed(11)
    module, inputs = LARGE[name](torch)
    return module.eval(), inputs
