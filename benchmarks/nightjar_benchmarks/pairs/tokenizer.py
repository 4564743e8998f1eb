"""A small byte-level BPE tokenizer, trained on the documentation that comes with Python."""

from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from nightjar_benchmarks.pairs.files import write_json
from nightjar_benchmarks.pairs.graph import END_OF_TEXT

_END_NAME = "<|end|>"


def train(vocab_size: int) -> Tokenizer:
    """Exactly `vocab_size` tokens, 0 the end of text; plain tokens fill up what the text cannot give."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[_END_NAME],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    missing = vocab_size - tokenizer.get_vocab_size()
    tokenizer.add_tokens([AddedToken(f"<|plain{number}|>", normalized=False) for number in range(missing)])
    if tokenizer.token_to_id(_END_NAME) != END_OF_TEXT:
        raise RuntimeError(f"the end of text must be token {END_OF_TEXT}")
    return tokenizer


def write_tokenizer(folder: Path, tokenizer: Tokenizer, max_positions: int) -> None:
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": _END_NAME,
            "eos_token": _END_NAME,
            "pad_token": _END_NAME,
            "clean_up_tokenization_spaces": False,
            "model_max_length": max_positions,
        },
    )


def _texts() -> Iterator[str]:
    yield from (topics[name] for name in sorted(topics))
