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
}
LOST = {"datacenter": "dc2", "isKnown": False, "reason": "status unknown since noon: it is away"}


def test_status_has_a_row_for_each_node_and_says_which_datacentres_are_unknown(hermes, server):
    gone = {**NODE, "node": "n2", "state": "GONE", "reasons": ["not heard of\x1b for 12 s", "old"]}
    server.on(
        "GET /status/nodes",
        (
            200,
            {"datacenters": [{"datacenter": "dc1", "isKnown": True}, LOST], "nodes": [NODE, gone]},
        ),
    )
    result = hermes("status")
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    figures = ["0.5", "s", "12.2", "3.0", "7", "1", "consumers"]
    assert lines[0][:5] == ["DC", "Node", "State", "Age", "Publ./s"]
    assert lines[1:3] == [["dc1", "n1", "READY", *figures], ["dc1", "n2", "GONE", *figures]]
    assert result.stdout.splitlines()[3:] == [
        "dc2: status unknown since noon: it is away",
        "dc1 n2: not heard of\\x1b for 12 s; old",
    ]


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


def test_why_has_a_row_for_each_node_and_the_datacentres_reason_where_there_is_none(hermes, server):
    server.on(
        "GET /topics/shop.orders/subscriptions/billing/why",
        (
            200,
            {
                "state": "ACTIVE",
                "datacenters": [
                    {
                        "datacenter": "dc1",
                        "isKnown": True,
                        "reason": "n1: suspended",
                        "nodes": [
                            {
                                "node": "n1",
                                "state": "STOPPED",
                                "reason": "suspended",
                                "rate": 0.0,
                                "lag": 12,
                            }
                        ],
                    },
                    {**LOST, "nodes": [{"node": "n3", "state": "UNKNOWN", "lag": -1}]},
                    {"datacenter": "dc3", "isKnown": True, "reason": "no node", "nodes": []},
                ],
            },
        ),
    )
    result = hermes("subscription", "why", "shop.orders", "billing")
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["subscription", "billing", "of", "shop.orders", "is", "ACTIVE"],
        ["DC", "Node", "State", "Deliv./s", "Lag", "Reason"],
        ["dc1", "n1", "STOPPED", "0.0", "12", "suspended"],
        ["dc2", *LOST["reason"].split()],
        ["dc2", "n3", "UNKNOWN", "0.0", "?"],
        ["dc3", "no", "node"],
    ]


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
