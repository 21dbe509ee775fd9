"""A module beside a flow: it reaches the workers with the flow."""


def clean(word: str) -> str:
    return "".join(filter(str.isalpha, word)).lower()
