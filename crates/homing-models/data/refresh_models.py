#!/usr/bin/env python3
"""Takes the limits and abilities of models from the table inside the Python package `litellm` (MIT).

Writes `models.tsv`: one model on each line, sorted by bytes so that the program can search it without decoding it:
the provider as in the table of prices, a slash, the model in lower case; the most input tokens; the most output
tokens (`-` if they are not published); and what it can do: `r`easoning, `i`mages, `p`df, `t`ools.

An edition of a model (a date, `-latest`) is listed only if it differs from the model, because the program looks up
the name without its edition as well. `src/model_table.rs` must cut names in the same way.
"""

import io
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
TABLE = "litellm/model_prices_and_context_window_backup.json"

# Their name of a provider: its name in the table of prices, and what precedes a model of it.
PROVIDERS = {
    "anthropic": ("anthropic", ""),
    "azure": ("azure", "azure/"),
    "azure_ai": ("azure", "azure_ai/"),
    "bedrock": ("aws", ""),
    "bedrock_converse": ("aws", ""),
    "cerebras": ("cerebras", "cerebras/"),
    "cohere_chat": ("cohere", ""),
    "deepinfra": ("deepinfra", "deepinfra/"),
    "deepseek": ("deepseek", "deepseek/"),
    "fireworks_ai": ("fireworks", "fireworks_ai/"),
    "gemini": ("google", "gemini/"),
    "groq": ("groq", "groq/"),
    "minimax": ("minimax", "minimax/"),
    "mistral": ("mistral", "mistral/"),
    "moonshot": ("moonshotai", "moonshot/"),
    "novita": ("novita", "novita/"),
    "openai": ("openai", ""),
    "openrouter": ("openrouter", "openrouter/"),
    "perplexity": ("perplexity", "perplexity/"),
    "sambanova": ("sambanova", "sambanova/"),
    "together_ai": ("together", "together_ai/"),
    "xai": ("x-ai", "xai/"),
    "zai": ("zai", "zai/"),
}

# Models that their makers no longer list, but that others still sell: name there, and their maker.
RESOLD = [
    ("aws", re.compile(r"^anthropic\.(claude-.*)$"), "anthropic"),
    ("azure", re.compile(r"^((?:gpt-|o\d|chatgpt-).*)$"), "openai"),
]

REGION = re.compile(r"^(us|eu|apac|jp|au|ca|sa|me|af|in|global|us-gov)[./]")
EDITION = re.compile(r"(-v\d+:\d+|[-@](\d{2}-\d{4}|\d{3,}(-\d+)*|latest))$")


def download(folder):
    """Returns the version of the newest package, its table and its licence."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, "litellm"]
    subprocess.run(command, check=True)
    wheel = next(Path(folder).glob("litellm-*.whl"))
    with zipfile.ZipFile(io.BytesIO(wheel.read_bytes())) as files:
        licence = next(name for name in files.namelist() if name.endswith("/LICENSE") and "dist-info" in name)
        return wheel.name.split("-")[1], json.loads(files.read(TABLE)), files.read(licence)


def entry(card):
    """Returns the columns of a model; `None` if no limit is published."""
    limit = lambda key: card[key] if isinstance(card.get(key), int) and card[key] > 0 else None
    context, output = limit("max_input_tokens"), limit("max_output_tokens")
    if context is None and output is None:
        return None
    flags = [("r", "supports_reasoning"), ("i", "supports_vision"), ("p", "supports_pdf_input"),
             ("t", "supports_function_calling")]
    abilities = "".join(letter for letter, key in flags if card.get(key) is True)
    return (context, output, abilities)


def named(name, provider):
    """Returns the name that a request has for a model of the table."""
    table, start = PROVIDERS[provider]
    name = name.removeprefix(start).lower()
    if table == "aws":
        # The table repeats a model for each region and commitment; only the last part is its id.
        name = name.split("/")[-1]
    if table in ("aws", "azure"):
        name = REGION.sub("", name)
    return table, name


def base(name):
    """Returns a name without its edition: `claude-opus-4-20250514-v1:0` becomes `claude-opus-4`."""
    while (cut := EDITION.sub("", name)) != name:
        name = cut
    return name


def collect(table):
    models = {}
    for name, card in table.items():
        provider = card.get("litellm_provider")
        if provider not in PROVIDERS or card.get("mode") not in ("chat", "responses"):
            continue
        columns = entry(card)
        if columns is not None and not name.startswith("ft:"):
            models.setdefault(named(name, provider), columns)
    for (provider, name), columns in list(models.items()):
        for seller, pattern, maker in RESOLD:
            if provider == seller and (found := pattern.match(name)):
                models.setdefault((maker, found.group(1)), columns)
    return models


def compact(models):
    """Adds each model without its edition, as the newest edition has it, and drops editions that do not differ."""
    newest = {}
    for (provider, name), columns in sorted(models.items()):
        newest[(provider, base(name))] = columns
    newest.update({key: columns for key, columns in models.items() if key in newest})
    return {key: columns for key, columns in (models | newest).items()
            if key in newest or newest.get((key[0], base(key[1]))) != columns}


def main():
    with tempfile.TemporaryDirectory() as folder:
        version, table, licence = download(folder)
    lines = [f"{provider}/{name}\t{context or '-'}\t{output or '-'}\t{abilities}"
             for (provider, name), (context, output, abilities) in compact(collect(table)).items()]
    lines.sort(key=lambda line: line.split("\t")[0].encode())
    assert all(line.isascii() for line in lines), "the program searches bytes"
    text = f"# litellm {version}: provider/model, input tokens, output tokens, abilities\n" + "\n".join(lines) + "\n"
    (FOLDER / "models.tsv").write_text(text)
    (FOLDER / "LICENSE-litellm").write_bytes(licence)
    print(f"{len(lines)} models, {len(text)} bytes, litellm {version}")


if __name__ == "__main__":
    main()
