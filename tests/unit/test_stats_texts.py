"""Sampled answers of two arms: garbage and lost variety are noticed, chance is not."""

from __future__ import annotations

import random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specops import stats

Answers = dict[str, list[str]]
WORDS = [
    f"{start}{middle}{end}" for start in "bdfgklmprst" for middle in "aeiou" for end in ("n", "ra", "lis")
]
PROMPTS = 64


def sampled(
    chooser: random.Random, a_prompt: int = 1, variety: int = 12, topics: int = 3, words: int = 40
) -> Answers:
    """Answers to each prompt, of words of its topic and of its own; few of them are usual."""
    answers: Answers = {}
    for number in range(PROMPTS):
        usual = random.Random(number % topics).sample(WORDS, 60) + random.Random(number).sample(WORDS, 30)
        weights = [2.0 ** (-(rank % 30) * 6 / variety) for rank in range(90)]
        answers[f"p{number}"] = [" ".join(chooser.choices(usual, weights, k=words)) for _ in range(a_prompt)]
    return answers


def garbled(answers: Answers, chooser: random.Random, every: int = 1) -> Answers:
    """Every so many prompts, characters of the same number, drawn at random."""
    return {
        prompt: ["".join(chooser.choices("abcdefghijklmnoprstuvw ", k=len(text))) for text in texts]
        if number % every == 0
        else texts
        for number, (prompt, texts) in enumerate(answers.items())
    }


def p_values(make_pair: object, runs: int) -> list[float]:
    values = []
    for seed in range(runs):
        standard, challenger = make_pair(random.Random(seed))  # type: ignore[operator]
        value = stats.compare_samples(standard, challenger, seed=seed)
        assert value is not None
        values.append(value)
    return values


def test_garbage_of_equal_length_is_noticed() -> None:
    values = p_values(lambda chooser: (sampled(chooser), garbled(sampled(chooser), chooser)), 5)
    assert max(values) < 0.01


def test_answers_without_variety_are_noticed() -> None:
    """An ignored temperature: each prompt's most usual words again and again, or one text for all."""
    greedy = p_values(lambda chooser: (sampled(chooser), sampled(chooser, variety=2)), 5)
    constant = p_values(
        lambda chooser: (sampled(chooser), {prompt: ["I cannot help."] for prompt in sampled(chooser)}), 3
    )
    assert max(greedy + constant) < 0.01


def test_answers_to_another_prompt_are_noticed_where_likely_ones_are_known() -> None:
    """The same words as often, of one topic, so that only their prompt tells them apart."""
    right, chance = [], []
    for seed in range(8):
        chooser = random.Random(seed)
        likely = sampled(chooser, variety=4, topics=1)
        standard, other = sampled(chooser, topics=1), sampled(chooser, topics=1)
        texts = list(other.values())
        moved = dict(zip(other, [*texts[1:], texts[0]], strict=True))
        right.append(stats.compare_samples(standard, moved, likely, seed=seed, swaps=1999))
        chance.append(stats.compare_samples(standard, other, likely, seed=seed, swaps=1999))
    assert max(value for value in right if value is not None) <= 0.002
    assert min(value for value in chance if value is not None) > 0.002


@pytest.mark.parametrize(("length", "share"), [(0.4, 0.1), (2.5, 0.15)])
def test_some_answers_of_another_length_are_noticed(length: float, share: float) -> None:
    """Lengths vary by half as it is, so that their mean changes by less than chance does."""

    def of_varied_length(chooser: random.Random, share: float) -> Answers:
        def cut(text: str) -> str:
            words = text.split()[: chooser.randint(15, 40)]
            if chooser.random() < share:
                words = (words * 3)[: round(length * len(words))]
            return " ".join(words)

        return {name: list(map(cut, texts)) for name, texts in sampled(chooser, a_prompt=4).items()}

    values = p_values(lambda chooser: (of_varied_length(chooser, 0), of_varied_length(chooser, share)), 8)
    chance = p_values(lambda chooser: (of_varied_length(chooser, 0), of_varied_length(chooser, 0)), 8)
    assert sum(value <= 0.005 for value in values) >= 7
    assert min(chance) > 0.005


def test_a_few_garbled_answers_are_mostly_noticed() -> None:
    """Seven of 64: were they all that differs, p would be 2^-7 / 0.3. By chance, short and varied answers
    differ so much that their mean features notice it in a quarter of the runs only."""

    def make_pair(chooser: random.Random) -> tuple[Answers, Answers]:
        standard, challenger = (sampled(chooser, variety=60, topics=64, words=10) for _ in range(2))
        return standard, garbled(challenger, chooser, every=10)

    assert sum(value <= 0.05 for value in p_values(make_pair, 20)) >= 18


def test_chance_is_rarely_noticed() -> None:
    values = p_values(lambda chooser: (sampled(chooser), sampled(chooser)), 25)
    assert sum(value <= 0.05 for value in values) <= 4


@pytest.mark.slow
@pytest.mark.parametrize("a_prompt", [1, 3])
def test_chance_is_noticed_as_rarely_as_it_says(a_prompt: int) -> None:
    runs = 200 // a_prompt
    values = p_values(lambda chooser: (sampled(chooser, a_prompt), sampled(chooser)), runs)
    for level in (0.05, 0.2):
        allowed = level * runs + 3 * (level * (1 - level) * runs) ** 0.5
        assert sum(value <= level for value in values) <= allowed
    assert fmean(values) > 0.5


texts = st.text(max_size=12)
answer_sets = st.dictionaries(st.integers(0, 30).map(str), st.lists(texts, max_size=4), max_size=30)


@settings(deadline=None)
@given(answer_sets, answer_sets, st.integers(0, 2**31))
def test_whatever_the_answers_it_is_a_probability(standard: Answers, challenger: Answers, seed: int) -> None:
    value = stats.compare_samples(standard, challenger, seed=seed, swaps=99)
    shared = [name for name in standard if standard[name] and challenger.get(name)]
    assert value is None or (len(shared) > 0 and 0.01 <= value <= 1)
    if len(shared) >= 7:
        assert value is not None
    assert value == stats.compare_samples(standard, challenger, seed=seed, swaps=99)


@given(answer_sets, st.integers(0, 2**31))
def test_equal_answers_do_not_differ(answers: Answers, seed: int) -> None:
    value = stats.compare_samples(answers, answers, seed=seed, swaps=99)
    assert value is None or value > 0.5  # half of the swaps are as far to either side


@pytest.mark.parametrize("seed", range(40))
def test_the_same_answer_everywhere_does_not_differ_by_rounding(seed: int) -> None:
    dice = random.Random(seed)
    prompts = [f"p{number}" for number in range(dice.randint(12, 48))]
    arms = [{prompt: ["one two three four"] * dice.randint(1, 7) for prompt in prompts} for _ in range(2)]
    assert stats.texts.compare_samples(*arms, seed=0) in (None, 1.0)


def test_too_few_answers_say_nothing() -> None:
    few = {f"p{number}": ["text"] for number in range(6)}
    assert stats.compare_samples(few, few, seed=0, swaps=99) is None
    assert stats.compare_samples({}, {}, seed=0) is None
    assert stats.compare_samples(few, {f"q{number}": ["text"] for number in range(64)}, seed=0) is None
    twice = {prompt: texts * 2 for prompt, texts in few.items()}
    assert stats.compare_samples(few, twice, seed=0, swaps=99) == 1.0  # 3^6 ways
