#!/usr/bin/env python3
"""Prepares the published price table (genai-prices, JSON) for look-ups without decoding: prepare_prices.py < prices.json > prices.tsv

A provider is a line `[id]`, its other names as patterns, and the providers whose models it also sells. Each of its models
follows on a line: patterns of its names, ID, context window, prices.

Patterns are alternatives separated by spaces; each is a list of terms joined by `&`: `=` the whole name, `^` its beginning,
`$` its end, `*` a part of it, `!` not a part of it that ends with the name or before a hyphen. `#` stands for a digit.

Prices are input, cached input, cache writes and output in micro-dollars per million tokens, separated by commas, each with
`>SIZE:PRICE` for requests with more input tokens. If they changed or depend on the hour, there are several, separated
by `;`, the later ones behind a date (`2026-10-19=`) or hours (`00:30:00-16:30:00=`, UTC).
"""
import json
import re
import sys
from decimal import ROUND_CEILING, Decimal

NOT_SPEECH = r"^(?!.*-[tT][tT][sS](?:$|-))"
KINDS = {"equals": "=", "starts_with": "^", "ends_with": "$", "contains": "*"}
KEYS = ("input_mtok", "cache_read_mtok", "cache_write_mtok", "output_mtok")


def literal(text):
    if re.search(r"[\s&#,;]", text):
        sys.exit(f"a name with a special character: {text!r}")
    return text.lower()


def from_regex(text):
    """Translates the few forms that the table uses; an unknown one is an error, never a wrong price."""
    if text == NOT_SPEECH:
        return ["!-tts"]
    body = text.removeprefix("^").removesuffix("$")
    kind = "=" if text.endswith("$") else "^"
    if not text.startswith("^"):
        sys.exit(f"unknown regular expression: {text}")
    bodies = [body.replace("[-@]", sign) for sign in "-@"] if "[-@]" in body else [body]
    terms = []
    for body in bodies:
        body = re.sub(r"\\d\{(\d+)\}", lambda found: "#" * int(found[1]), body).replace(r"\d", "#")
        body = re.sub(r"\\([.\[\]])", lambda found: {".": "\0", "[": "\1", "]": "\2"}[found[1]], body)
        if re.search(r"[\\.\[\](){}*+?|^$A-Z\s&,;]", body):
            sys.exit(f"unknown regular expression: {text}")
        plain = body.replace("\0", ".").replace("\1", "[").replace("\2", "]")
        terms.append(kind + plain)
    return terms


def patterns(rule):
    """The alternatives of a rule."""
    [(kind, value)] = rule.items()
    if kind == "or":
        return [pattern for part in value for pattern in patterns(part)]
    if kind == "and":
        joined = [""]
        for part in value:
            joined = [f"{left}&{right}" if left else right for left in joined for right in patterns(part)]
        return joined
    if kind == "regex":
        return from_regex(value)
    return [KINDS[kind] + literal(value)]


def micros(dollars):
    """Whole micro-dollars, rounded up unless the difference is a floating-point error."""
    exact = Decimal(str(dollars)) * 1_000_000
    near = exact.to_integral_value()
    return str(int(near if abs(exact - near) < Decimal("0.001") else exact.to_integral_value(ROUND_CEILING)))


def price(value):
    if value is None:
        return ""
    if isinstance(value, dict):
        tiers = sorted(value["tiers"], key=lambda tier: tier["start"])
        return micros(value["base"]) + "".join(f">{tier['start']}:{micros(tier['price'])}" for tier in tiers)
    return micros(value)


def prices(value):
    def one(prices):
        return ",".join(price(prices.get(key)) for key in KEYS)

    if isinstance(value, dict):
        return one(value)
    texts = []
    for part in value:
        match part.get("constraint"):
            case None:
                assert not texts, "the price without a condition is first"
                texts.append(one(part["prices"]))
            case {"start_date": date}:
                texts.append(f"{date}={one(part['prices'])}")
            case {"start_time": start, "end_time": end} if start.endswith("Z") and end.endswith("Z"):
                texts.append(f"{start[:8]}-{end[:8]}={one(part['prices'])}")
            case other:
                sys.exit(f"unknown condition: {other}")
    return ";".join(texts)


for provider in json.load(sys.stdin):
    names = patterns(provider["provider_match"]) if "provider_match" in provider else []
    print(f"[{provider['id']}]", " ".join(names), " ".join(provider.get("fallback_model_providers", [])), sep="\t")
    for model in provider["models"]:
        print(" ".join(patterns(model["match"])), model["id"], model.get("context_window", ""), prices(model["prices"]), sep="\t")
