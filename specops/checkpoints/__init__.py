"""What a model's files say, read without loading it: no weights, no torch.

source.py      where the files lie: a local folder, or a repository of the hub
headers.py     safetensors headers: which tensors there are, and how large
config.py      config.json: shapes, vocabulary, what the KV cache holds
kind.py        what kind of draft a checkpoint is
tokenizer.py   the tokenizer as data, and as something that encodes
templates.py   chat templates, rendered as transformers renders them
"""
