from typing import Any

NODE = {
    "datacenter": "dc1",
    "node": "n1",
    "state": "READY",
    "reasons": [],
    "ageMs": 512,
    "roles": ["consumers"],
    "publishedRate": 12.25,
    "deliveredRate": 3.0,
    "subscriptions": 7,
    "stoppedSubscriptions": 1,
    "failingSubscriptions": 2,
}
LOST: dict[str, Any] = {
    "datacenter": "dc2",
    "isKnown": False,
    "reason": "status unknown since noon: it is away",
}


def test_status_has_a_row_for_each_node_and_says_which_datacentres_are_unknown(hermes, server):
    gone = {**NODE, "node": "n2", "state": "GONE", "reasons": ["not heard of\x1b for 12 s", "old"]}
    server.on(
        "GET /status/nodes",
        (
            200,
            {
                "datacenters": [{"datacenter": "dc1", "isKnown": True}, LOST],
                "stoppedSubscriptions": 1,
                "failingSubscriptions": 3,
                "nodes": [NODE, gone],
                "notices": [{"datacenter": "dc1", "text": "nobody runs 3 subscriptions: full"}],
            },
        ),
    )
    result = hermes("status")
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    figures = ["0.5", "s", "12.2", "3.0", "7", "3", "consumers"]
    assert lines[0][:5] == ["DC", "Node", "State", "Age", "Publ./s"]
    assert lines[1:3] == [
        ["dc1", "n1", "READY", *figures],
        [
            "dc1",
            "n2",
            "GONE",
            "0.5",
            "s",
            "-",
            "-",
            "-",
            "-",
            "consumers",
        ],
    ]
    assert result.stdout.splitlines()[3:] == [
        "dc2: status unknown since noon: it is away",
        "dc1 n2: not heard of\\x1b for 12 s; old",
        "dc1: nobody runs 3 subscriptions: full",
        "ill: 1 subscription stopped, 3 failing, see 'hermes subscription list --unhealthy'",
    ]


ILL = {"stoppedSubscriptions": 2400, "failingSubscriptions": 3600}


def wide_cluster(server):
    """Eight nodes with such names as a real deployment gives them."""
    roles = {"frontend": ["frontend"], "consumers": ["consumers"], "management": ["management"]}
    nodes = [
        {
            **NODE,
            "datacenter": f"dc{dc}",
            "node": f"{role}-dc{dc}-{at}",
            "state": "NOT_READY",
            "roles": roles[role] if at == 1 else ["frontend", "consumers", "management"],
            "publishedRate": 12345.6,
            "deliveredRate": 54321.0,
            "subscriptions": 3000,
            "stoppedSubscriptions": 400,
            "failingSubscriptions": 600,
            "ageMs": 10_400,
        }
        for dc in (1, 2)
        for role, at in (("consumers", 1), ("frontend", 2), ("management", 1))
    ]
    server.on("GET /status/nodes", (200, {**ILL, "datacenters": [], "nodes": nodes}))
    return nodes


def test_status_shows_roles_where_there_is_room_for_them(hermes, server, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    wide_cluster(server)
    lines = hermes("status").stdout.splitlines()
    assert lines[0].endswith(" Roles")
    assert len(lines) == 8
    assert lines[2].rstrip().endswith(" frontend, consumers, management")


def test_status_as_json_is_the_servers_own(hermes, server):
    server.on("GET /status/nodes", (200, b'{"datacenters":[],  "nodes":[]}'))
    assert hermes("status", "-o", "json").stdout == '{"datacenters":[],  "nodes":[]}\n'


def test_status_without_any_node_says_so(hermes, server):
    server.on("GET /status/nodes", (200, {"datacenters": [], "nodes": []}))
    assert hermes("status").stdout == "no node is known\n"


def test_an_answer_of_another_shape_is_one_line(hermes, server):
    server.on("GET /status/nodes", (200, ["a"]))
    result = hermes("status")
    assert result.exit_code == 1
    assert "expected an object" in result.stderr


def test_why_as_json_is_the_servers_own_and_a_refusal_has_its_way_out(hermes, server):
    path = "GET /topics/shop.orders/subscriptions/billing/why"
    server.on(path, (200, b'{"state":"ACTIVE"}'))
    shown = hermes("subscription", "why", "shop.orders", "billing", "-o", "json")
    assert shown.stdout == '{"state":"ACTIVE"}\n'
    assert "follows no node" in hermes("subscription", "why", "shop.orders", "billing").stdout
    server.on(path, (400, {"message": "no such", "code": "SUBSCRIPTION_NOT_EXISTS"}))
    refused = hermes("subscription", "why", "shop.orders", "billing")
    assert refused.exit_code == 1
    assert "hermes subscription list" in refused.stderr


def test_status_tells_what_an_operator_should_know_of_a_node_that_is_there(hermes, server):
    notice = "the event loop stood still once, in the last 10 minutes"
    nodes = [
        {"datacenter": "dc1", "node": name, "state": state, "notices": [notice]}
        for name, state in (("n1", "READY"), ("n2", "GONE"))
    ]
    server.on("GET /status/nodes", (200, {"datacenters": [], "nodes": nodes}))
    said = hermes("status").stdout
    assert f"dc1 n1: {notice}" in " ".join(said.split())
    assert "dc1 n2: " not in said


def test_of_a_node_whose_datacentre_tells_nothing_no_figure_is_shown(hermes, server, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    node = {**NODE, "datacenter": "dc2", "state": "UNKNOWN"}
    server.on("GET /status/nodes", (200, {"nodes": [node], "datacenters": [LOST]}))
    line = hermes("status").stdout.splitlines()[1]
    assert line.split()[:9] == ["dc2", "n1", "UNKNOWN", "0.5", "s", "?", "?", "?", "?"]
