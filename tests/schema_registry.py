"""A Confluent schema registry in the process that queries it."""

import json
from urllib.parse import unquote

import httpx

TOPIC = "shop.orders"
URL = "http://registry.test"


class Registry:
    """A Confluent schema registry. `instead` replaces its answers."""

    def __init__(self):
        self.subjects = {}
        self.asked = []
        self.instead = None

    async def __call__(self, request):
        self.asked.append(request)
        if self.instead is not None:
            answer = self.instead(request)
            return await answer if hasattr(answer, "__await__") else answer
        match unquote(request.url.raw_path.decode()).strip("/").split("/"):
            case ["subjects", name, *_] if request.method == "POST":
                return self.registered(request, name)
            case ["subjects", name, "versions"] if name in self.subjects:
                return httpx.Response(200, json=sorted(self.subjects[name]))
            case ["subjects", name, "versions", number] if int(number) in self.subjects.get(
                name, {}
            ):
                return httpx.Response(200, json=self.subjects[name][int(number)])
            case ["subjects", name] if request.method == "DELETE" and name in self.subjects:
                return httpx.Response(200, json=sorted(self.subjects.pop(name)))
            case ["schemas", "ids", own_id]:
                for versions in self.subjects.values():
                    for each in versions.values():
                        if each["id"] == int(own_id):
                            return httpx.Response(200, json={"schema": each["schema"]})
        return httpx.Response(404, json={"error_code": 40401, "message": "not found"})

    def put(self, number, own_id, *, name=TOPIC, schema='"string"', **fields):
        each = {"subject": name, "version": number, "id": own_id, "schema": schema, **fields}
        self.subjects.setdefault(name, {})[number] = each

    def registered(self, request, name):
        body = json.loads(request.content)
        for each in self.subjects.get(name, {}).values():
            if each["schema"] == body["schema"]:
                return httpx.Response(200, json=each)
        number = len(self.subjects.get(name, {})) + 1
        self.put(number, 100 + number, name=name, **body)
        return httpx.Response(200, json={"id": 100 + number})
