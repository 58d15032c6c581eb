"""Real models, small and with random weights: models.py runs them without PyTorch, and key_table.py exports them.

MODELS maps each name to a function of torch that makes a module and its inputs, whose first size is the batch. The models
in PLAIN need only PyTorch; the others need transformers or torchvision (pip install --target=DIR, PYTHONPATH=DIR).
"""
import importlib
import sys


# ---- models that need only PyTorch ----

def encoder_layer(torch):
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (torch.randn(2, 10, 64),)


def gpt_like(torch):
    """Two blocks with a causal mask: one uses nn.MultiheadAttention, one scaled_dot_product_attention with fewer key
    heads."""
    nn = torch.nn

    class Grouped(nn.Module):
        def __init__(self, width, heads, groups):
            super().__init__()
            self.heads, self.groups, size = heads, groups, width // heads
            self.query, self.key_value = nn.Linear(width, width), nn.Linear(width, 2 * groups * size)
            self.out = nn.Linear(width, width)

        def forward(self, x):
            batch, length, width = x.shape
            query = self.query(x).view(batch, length, self.heads, -1).transpose(1, 2)
            key, value = self.key_value(x).view(batch, length, 2, self.groups, -1).permute(2, 0, 3, 1, 4)
            y = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
            return self.out(y.transpose(1, 2).reshape(batch, length, width))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(100, 48), nn.Embedding(32, 48)
            self.first, self.second = nn.MultiheadAttention(48, 4, batch_first=True), Grouped(48, 6, 2)
            self.norms = nn.ModuleList(nn.LayerNorm(48) for _ in range(3))
            self.wide, self.narrow, self.head = nn.Linear(48, 96), nn.Linear(96, 48), nn.Linear(48, 100)

        def forward(self, tokens):
            length = tokens.shape[1]
            x = self.tokens(tokens) + self.places(torch.arange(length))
            later = torch.ones(length, length, dtype=torch.bool).triu(1)
            y = self.norms[0](x)
            x = x + self.first(y, y, y, attn_mask=later, need_weights=False)[0]
            x = x + self.second(self.norms[1](x))
            x = x + self.narrow(nn.functional.gelu(self.wide(self.norms[2](x))))
            return self.head(x)

    return Model(), (torch.randint(0, 100, (2, 17)),)


def lstm(torch):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = torch.nn.Embedding(80, 24)
            self.layers = torch.nn.LSTM(24, 32, 2, batch_first=True, bidirectional=True)
            self.head = torch.nn.Linear(64, 80)

        def forward(self, tokens):
            y, (state, cell) = self.layers(self.tokens(tokens))
            return self.head(y), state, cell

    return Model(), (torch.randint(0, 80, (3, 11)),)


def gru(torch):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.layers = torch.nn.Embedding(80, 24), torch.nn.GRU(24, 32, 1, batch_first=True)
            self.head = torch.nn.Linear(32, 80)

        def forward(self, tokens):
            return self.head(self.layers(self.tokens(tokens))[0])

    return Model(), (torch.randint(0, 80, (3, 5)),)


def u_net(torch):
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            def block(inputs, outputs):
                return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())
            self.down, self.bottom, self.up = block(3, 16), block(16, 32), block(32, 16)
            self.rise, self.out = nn.ConvTranspose2d(32, 16, 2, stride=2), nn.Conv2d(16, 2, 1)

        def forward(self, x):
            down = self.down(x)
            low = self.bottom(nn.functional.max_pool2d(down, 2))
            return self.out(self.up(torch.cat([down, self.rise(low)], 1)))

    return Model(), (torch.randn(1, 3, 32, 32),)


def lstm_language(torch):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.layers = torch.nn.Embedding(80, 24), torch.nn.LSTM(24, 32, 2, batch_first=True)
            self.head = torch.nn.Linear(32, 80)

        def forward(self, tokens):
            return self.head(self.layers(self.tokens(tokens))[0])

    return Model(), (torch.randint(0, 80, (2, 9)),)


def recommendation(torch):
    """Like DLRM: numbers through one MLP, bags of categories through embeddings, their products through another MLP."""
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.EmbeddingBag(50, 16, mode=mode) for mode in ("sum", "mean", "max"))
            self.bottom = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
            self.top = nn.Sequential(nn.Linear(16 + 6, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())

        def forward(self, numbers, *bags):
            dense = self.bottom(numbers)
            rows = torch.stack([dense] + [table(bag) for table, bag in zip(self.tables, bags)], 1)
            products = torch.bmm(rows, rows.transpose(1, 2))
            first, second = torch.triu_indices(4, 4, 1)
            return self.top(torch.cat([dense, products[:, first, second]], 1))

    return Model(), (torch.randn(2, 13), *[torch.randint(0, 50, (2, size)) for size in (1, 4, 3)])


# ---- models of torchvision and transformers ----

def torchvision_module(torch, name):
    """
    Importing torchvision registers fakes for operators of its own library. That library cannot be loaded with another
    PyTorch, and no model here calls it. transformers imports torchvision, too.
    """
    kept, torch.library.register_fake = torch.library.register_fake, lambda *_, **__: lambda function: function
    try:
        return importlib.import_module(name)
    finally:
        torch.library.register_fake = kept


def transformers_module(torch):
    try:
        torchvision_module(torch, "torchvision")
    except ImportError:
        pass  # most models do not need torchvision
    return importlib.import_module("transformers")


def called(torch, inner, call):
    """Returns a module that calls the module `inner` and returns what `call` takes from its result."""
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, *given):
            return call(self.inner, *given)

    return Model()


def of_transformers(make, inputs, call):
    """`call`: the field of the result that is the output, or a function of the model and its inputs."""
    if isinstance(call, str):
        field = call
        def call(inner, *given):
            return getattr(inner(*given), field)
    return lambda torch: (called(torch, make(transformers_module(torch)), call), inputs(torch))


def of_torchvision(make, size=64):
    return lambda torch: (make(torchvision_module(torch, "torchvision").models), (torch.randn(1, 3, size, size),))


def without_head(models, **sizes):
    """Removes the head: a vision transformer's head begins with zero weights, so that its output would test nothing."""
    model = models.VisionTransformer(**{"image_size": 64, "patch_size": 16, "num_layers": 2, "num_heads": 4, "hidden_dim": 64,
                                        "mlp_dim": 128, **sizes})
    model.heads = sys.modules["torch"].nn.Identity()
    return model


def deeplab(torch, size=64):
    models = torchvision_module(torch, "torchvision.models.segmentation")
    model = models.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)
    return called(torch, model, lambda inner, image: inner(image)["out"]), (torch.randn(1, 3, size, size),)


def ssd_head(torch, maps=((16, 16), (32, 8), (24, 4)), anchors=(4, 6, 4), classes=7):
    """Boxes and classes of three feature maps, with these channels and sizes."""
    ssd = torchvision_module(torch, "torchvision.models.detection.ssd")
    inputs = tuple(torch.randn(1, channels, size, size) for channels, size in maps)

    def call(inner, *given):
        found = inner(list(given))
        return found["bbox_regression"], found["cls_logits"]
    return called(torch, ssd.SSDHead([channels for channels, _ in maps], list(anchors), classes), call), inputs


def tokens(torch):
    return (torch.randint(0, 100, (1, 24)),)


def tokens_and_states(torch):
    return torch.randint(0, 100, (1, 12)), torch.randn(1, 20, 64)


def decoder(inner, ids, states):
    return inner(input_ids=ids, encoder_hidden_states=states).last_hidden_state


def config(transformers, name, **more):
    sizes = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    return getattr(transformers, name)(**{**sizes, **more})


def language(model, config_name, call="last_hidden_state", inputs=tokens, **more):
    return of_transformers(lambda t: getattr(t, model)(config(t, config_name, **more)), inputs, call)


def causal(model, config_name, **more):
    return language(model, config_name, "logits", num_key_value_heads=2, use_cache=False, pad_token_id=0, **more)


def t5(transformers, **more):
    return transformers.T5Config(vocab_size=100, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, **more)


def whisper(transformers):
    return transformers.WhisperModel(transformers.WhisperConfig(
        vocab_size=100, num_mel_bins=16, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_source_positions=20,
        max_target_positions=32, use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1))


def wav2vec2(transformers):
    return transformers.Wav2Vec2Model(config(
        transformers, "Wav2Vec2Config", conv_dim=(32, 32, 32), conv_kernel=(10, 3, 2), conv_stride=(5, 2, 2),
        num_feat_extract_layers=3, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4))


# ---- the lists ----

PLAIN = {"encoder layers": encoder_layer, "GPT-like": gpt_like, "LSTM": lstm, "U-Net": u_net}
# Each kind of model once.
THIRTY = {
    "ResNet-18": of_torchvision(lambda t: t.resnet18()),
    "MobileNetV3 small": of_torchvision(lambda t: t.mobilenet_v3_small()),
    "EfficientNet-B0": of_torchvision(lambda t: t.efficientnet_b0()),
    "ConvNeXt tiny": of_torchvision(lambda t: t.convnext_tiny()),
    "RegNet-Y": of_torchvision(lambda t: t.regnet_y_400mf()),
    "ViT": of_torchvision(without_head),
    "Swin tiny": of_torchvision(lambda t: t.swin_t()),
    "U-Net": u_net,
    "DeepLabV3": deeplab,
    "SSD head": ssd_head,
    "BERT": language("BertModel", "BertConfig"),
    "DistilBERT": of_transformers(lambda t: t.DistilBertModel(t.DistilBertConfig(
        vocab_size=100, dim=64, n_layers=2, n_heads=4, hidden_dim=128)), tokens, "last_hidden_state"),
    "RoBERTa": language("RobertaModel", "RobertaConfig", max_position_embeddings=64),
    "GPT-2": of_transformers(lambda t: t.GPT2LMHeadModel(t.GPT2Config(
        vocab_size=100, n_positions=64, n_embd=64, n_layer=2, n_head=4, use_cache=False)), tokens, "logits"),
    "OPT": of_transformers(lambda t: t.OPTForCausalLM(t.OPTConfig(
        vocab_size=100, hidden_size=64, word_embed_proj_dim=64, ffn_dim=128, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=64, use_cache=False)), tokens, "logits"),
    "Llama": of_transformers(lambda t: t.LlamaForCausalLM(config(
        t, "LlamaConfig", num_key_value_heads=2, use_cache=False)), tokens, "logits"),
    "Mistral": causal("MistralForCausalLM", "MistralConfig"),
    "Qwen2": causal("Qwen2ForCausalLM", "Qwen2Config"),
    "Gemma": causal("GemmaForCausalLM", "GemmaConfig", head_dim=16),
    "Phi": causal("PhiForCausalLM", "PhiConfig"),
    "T5 encoder": of_transformers(lambda t: t.T5EncoderModel(t5(t)), tokens, "last_hidden_state"),
    "T5 decoder": of_transformers(lambda t: t.T5Model(t5(t, use_cache=False)).decoder, tokens_and_states, decoder),
    "Whisper encoder": of_transformers(lambda t: whisper(t).encoder, lambda torch: (torch.randn(1, 16, 40),),
                                       "last_hidden_state"),
    "Whisper decoder": of_transformers(lambda t: whisper(t).decoder, tokens_and_states, decoder),
    "CLIP text tower": of_transformers(lambda t: t.CLIPTextModel(config(
        t, "CLIPTextConfig", max_position_embeddings=32, eos_token_id=99)), tokens, "last_hidden_state"),
    "CLIP vision tower": of_transformers(lambda t: t.CLIPVisionModel(t.CLIPVisionConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, image_size=64, patch_size=16)),
        lambda torch: (torch.randn(1, 3, 64, 64),), "pooler_output"),
    "wav2vec2": of_transformers(wav2vec2, lambda torch: (torch.randn(1, 800),), "last_hidden_state"),
    "LSTM language model": lstm_language,
    "GRU": gru,
    "recommendation": recommendation,
}
MODELS = {
    **PLAIN, **THIRTY,
    "ResNet-50": of_torchvision(lambda t: t.resnet50()),
    "VGG-11": of_torchvision(lambda t: t.vgg11_bn()),
    "DenseNet-121": of_torchvision(lambda t: t.densenet121()),
    "SqueezeNet": of_torchvision(lambda t: t.squeezenet1_1()),
    "ShuffleNetV2": of_torchvision(lambda t: t.shufflenet_v2_x0_5()),
    "MNASNet": of_torchvision(lambda t: t.mnasnet0_5()),
    "MobileNetV2": of_torchvision(lambda t: t.mobilenet_v2()),
    "ELECTRA": language("ElectraModel", "ElectraConfig", embedding_size=32),
    "ALBERT": language("AlbertModel", "AlbertConfig", embedding_size=32),
}


def build(torch, name):
    torch.manual_seed(11)
    module, inputs = MODELS[name](torch)
    return module.eval(), inputs
