"""A model's files, read without loading it: no weights, no torch.

source.py        the files of a local folder or a hub repository; names and sizes of tensors
gguf.py          a GGUF file, read as such a folder
model_config.py  config.json: shapes, vocabulary, bytes of the KV cache
pickled.py       the tensors of a file of torch.save, described without running it
draft_kind.py    the kind of draft that a checkpoint is, from its tensors: the table of kinds
tokenizer.py     the tokenizer, as data and as an encoder
templates.py     chat templates, rendered as transformers renders them
"""
