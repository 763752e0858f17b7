"""Conversations for templates: made by a seed, with tools, odd Unicode and nulls."""

import random

WORDS = ["the", "Sky", "is", "blue", "naïve", "東京", "emoji 🙂", "tab\there", "line\nbreak", "  two  spaces ",
         "quote \" and 'single'", "back\\slash", "<b>&amp;</b>", "{{ x }}", "{% if %}", "e\u0301", "\u00a0nbsp\u3000",
         "ZW\u200bJ\u200d", "عربى", "1.50", "\u2028", "</think>", "<think>", "x" * 40, "", "[INST]", "#"]
JSON_VALUES = [1, -7, 2.5, 1e-7, 1e22, 0.1, True, False, None, "text", "日本", "it's", 'a "b"', [], {}, [1, "two", None],
               {"deep": {"list": [1, 2.0], "none": None}}]


class Maker:
    """Makes conversations of one seed."""

    def __init__(self, seed):
        self.draw = random.Random(seed)

    def text(self, words=8):
        count = self.draw.randrange(words)
        return " ".join(self.draw.choice(WORDS) for _ in range(count)).encode("utf-8").decode()

    def solid(self):
        return self.text() + self.draw.choice(["word", "Ω", "done.", "ende\n"])

    def value(self):
        return self.draw.choice(JSON_VALUES)

    def tool(self, number):
        names = self.draw.sample(["city", "unit", "days", "note", "type", "items", "flags"], self.draw.randrange(1, 4))
        properties = {}
        for name in names:
            kind = self.draw.choice(["string", "integer", "number", "boolean", "array", "object"])
            properties[name] = {"type": kind, "description": self.solid()}
            if kind == "string" and self.draw.random() < 0.4:
                properties[name]["enum"] = ["a", "b's", "ü"]
            if kind == "array":
                properties[name]["items"] = {"type": "string"}
            if kind == "object":
                properties[name]["properties"] = {"inner": {"type": "string", "description": "of it"}}
            if self.draw.random() < 0.2:
                properties[name]["default"] = self.draw.choice([1, "x", None, 2.5])
        function = {"name": f"tool_{number}", "description": self.solid(),
                    "parameters": {"type": "object", "properties": properties,
                                   "required": names[:self.draw.randrange(len(names) + 1)]}}
        return {"type": "function", "function": function}

    def calls(self, tools):
        calls = []
        for _ in range(self.draw.randrange(1, 3)):
            function = self.draw.choice(tools)["function"]
            arguments = {name: self.value() for name in function["parameters"]["properties"]}
            calls.append({"id": f"call{self.draw.randrange(10**5):05}", "type": "function",
                          "function": {"name": function["name"], "arguments": arguments}})
        return calls

    def conversation(self, greeting=False):
        """{messages, tools, documents, add_generation_prompt} as transformers takes them. With a greeting the
        assistant has the first message, behind the system's."""
        draw = self.draw
        with_tools = draw.random() < 0.4
        tools = [self.tool(i) for i in range(draw.randrange(1, 3))] if with_tools else None
        messages = []
        if draw.random() < 0.4:
            messages.append({"role": "system", "content": self.solid()})
        if greeting:
            messages.append({"role": "assistant", "content": self.solid()})
        for _ in range(draw.randrange(1, 4)):
            messages.append({"role": "user", "content": self.content()})
            answer = {"role": "assistant", "content": self.content(plain=draw.random() < 0.9)}
            if draw.random() < 0.25:
                answer["reasoning_content"] = draw.choice([self.solid(), "", None])
            if with_tools and draw.random() < 0.7:
                answer["tool_calls"] = self.calls(tools)
                if draw.random() < 0.6:
                    answer["content"] = draw.choice([None, ""])
                messages.append(answer)
                for call in answer["tool_calls"]:
                    messages.append({"role": "tool", "name": call["function"]["name"], "tool_call_id": call["id"],
                                     "content": draw.choice([self.solid(), '{"ok": true}'])})
                answer = {"role": "assistant", "content": self.solid()}
            elif draw.random() < 0.05:
                answer["tool_calls"] = None
            messages.append(answer)
        if draw.random() < 0.2:
            messages.pop()
        return {"messages": messages, "tools": tools, "documents": None,
                "add_generation_prompt": draw.random() < 0.3}

    def content(self, plain=None):
        if plain is None:
            plain = self.draw.random() < 0.92
        text = self.solid()
        return text if plain else [{"type": "text", "text": text}]
