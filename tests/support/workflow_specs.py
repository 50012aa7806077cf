"""Specs that tests of several kinds use, and results for them."""

from __future__ import annotations

ARTICLE = """
version: "0.2"
workflow:
  name: article
  description: Writes an article that somebody approves.
  input:
    topic: {type: string}
contracts:
  Draft:
    text: {type: string}
    words: {type: integer}
functions:
  write:
    mode: infer
    intent: Write about the topic.
    input: {topic: {type: string}}
    output: Draft
    ensure: ["result.words >= 3"]
    retries: 3
  ship:
    mode: gate
    intent: May it be published?
    input: {text: {type: string}}
flows:
  article:
    input: {topic: {type: string}}
    output: Draft
    max_rounds: 3
    steps:
      - id: draft
        function: write
        inputs: {topic: $.input.topic}
      - id: ship
        function: ship
        inputs: {text: $.steps.draft.output.text}
        on_approve: null
        on_revise: draft
        on_kill: null
"""
"""A spec with a check, retries, and a gate that can send the flow back."""

DRAFT = {"text": "Tides follow the moon.", "words": 4}
