"""`hermes apply`, `hermes export` and `hermes metadata` against whole clusters in memory."""

import json

import pytest
import yaml

SHOP = """
oauthProviders:
- {name: sso, tokenEndpoint: https://id.example.com/token, clientId: c, clientSecret: '${env:SSO}',
   tokenRequestInitialDelay: 100, tokenRequestMaxDelay: 60000, requestTimeout: 1000}
groups:
- groupName: shop
  labels: {team: sales}
topics:
- name: shop.orders
  description: 'since 2030-01-31: $${env:NOT}'
  owner: &owner {source: Plaintext, id: sales}
  contentType: AVRO
  retentionTime: {duration: 1}
  schemaFile: schemas/order.avsc
  labels: {team: sales}
---
topics:
- name: shop.carts
  description: two
  owner: *owner
  contentType: JSON
  retentionTime: {duration: 2, retentionUnit: HOURS}
  auth: {publishers: [web], enabled: true}
""".replace("*owner", "{source: Plaintext, id: sales}").replace("&owner ", "")
BILLING = {
    "subscriptions": [
        {
            "topicName": "shop.orders",
            "name": "billing",
            "endpoint": "https://ada:${env:PW}@billing.example.com/orders",
            "description": "2030-01-31",
            "owner": {"source": "Plaintext", "id": "sales"},
            "state": "SUSPENDED",
            "deliveryType": "BATCH",
            "subscriptionPolicy": {"batchSize": 7},
            "headers": [
                {"name": "X-Api-Key", "value": "${file:../key}"},
                {"name": "A", "value": "b"},
            ],
            "oAuthPolicy": {
                "grantType": "password",
                "providerName": "sso",
                "password": "${env:PW}",
            },
            "filters": [{"type": "header", "header": "h", "matcher": "a.*"}],
            "labels": {"team": "sales"},
        },
        {
            "topicName": "shop.carts",
            "name": "audit",
            "endpoint": "https://audit.example.com/",
            "description": "",
            "owner": {"source": "Plaintext", "id": "sales"},
            "trackingMode": "trackingAll",
            "signing": {"secrets": ["whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="]},
        },
    ],
    "workloadConstraints": [
        {"topicName": "shop.carts", "constraints": {"consumersNumber": 2}},
        {"subscriptionName": "shop.orders$billing", "constraints": {"consumersNumber": 3}},
    ],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {
            "name": "__metadata",
            "type": ["null", {"type": "map", "values": "string"}],
            "default": None,
        },
        {"name": "id", "type": "int"},
    ],
}
EXPORTED = {
    "OAUTH_SSO_CLIENT_SECRET": "hunter1",
    "SHOP_ORDERS_BILLING_ENDPOINT_PASSWORD": "hunter2",
    "SHOP_ORDERS_BILLING_OAUTH_PASSWORD": "hunter2",
    "SHOP_ORDERS_BILLING_HEADER_X_API_KEY": "k3y",
    "SHOP_CARTS_AUDIT_SIGNING_SECRET_1": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files of a team, in several folders."""
    monkeypatch.setenv("SSO", "hunter1")
    monkeypatch.setenv("PW", "hunter2")
    for name, value in EXPORTED.items():
        monkeypatch.setenv(name, value)
    files = tmp_path / "files"
    (files / "schemas").mkdir(parents=True)
    (files / "later").mkdir()
    (files / "shop.yaml").write_text(SHOP)
    # Avro schemas are no items.
    (files / "schemas" / "order.avsc").write_text(json.dumps(ORDER))
    (files / "later" / "billing.json").write_text(json.dumps(BILLING))
    (files / "key").write_text("k3y\n")
    return files


def test_a_folder_is_applied_once_and_its_export_changes_nothing(clusters, run, folder, tmp_path):
    cluster = clusters()
    compared = run(cluster, "apply", "-f", folder, "--diff")
    assert (compared.exit_code, compared.stdout.splitlines()[-1]) == (
        1,
        "8 created, 0 changed, 0 deleted, 0 unchanged (nothing was written)",
    )
    done = run(cluster, "apply", "-f", folder, "--reason", "CHG-7")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == compared.stdout.replace(" (nothing was written)", "")
    assert "+ topics/shop.orders/subscriptions/billing\n" in done.stdout
    topic = cluster.metadata.catalog.topics["shop.orders"].topic
    assert topic.description == "since 2030-01-31: ${env:NOT}"
    again = run(cluster, "apply", "-f", folder)
    assert again.stdout == "0 created, 0 changed, 0 deleted, 8 unchanged\n"

    exported = run(cluster, "export")
    assert [value for value in EXPORTED.values() if value in exported.stdout] == []
    for name in EXPORTED:
        assert f"#   {name}: " in exported.stdout
        assert f"${{env:{name}}}" in exported.stdout
    written = run(cluster, "export", "-o", tmp_path / "out")
    assert written.stdout == f"wrote 2 files to {tmp_path / 'out'}\n", written.stderr
    texts = [
        (tmp_path / "out" / f).read_text() for f in ("oauth-providers.yaml", "groups/shop.yaml")
    ]
    assert "---\n".join(texts) == exported.stdout
    found = run(cluster, "apply", "-f", "-", "--diff", stdin=exported.stdout)
    assert (found.exit_code, found.stdout.splitlines()[-1]) == (
        0,
        "0 created, 0 changed, 0 deleted, 8 unchanged (nothing was written)",
    )
    # Read by people: nothing that holds its default.
    carts = yaml.safe_load(texts[1])["topics"][0]
    assert carts == {
        "name": "shop.carts",
        "description": "two",
        "owner": {"source": "Plaintext", "id": "sales"},
        "contentType": "JSON",
        "retentionTime": {"duration": 2, "retentionUnit": "HOURS"},
        "fallbackToRemoteDatacenterEnabled": False,
        "auth": {"publishers": ["web"], "enabled": True, "unauthenticatedAccessEnabled": False},
    }
    empty = clusters()
    assert run(empty, "apply", "-f", tmp_path / "out").exit_code == 0
    assert run(empty, "export").stdout == exported.stdout


def test_only_the_items_of_a_label_or_group_are_exported(clusters, run, folder):
    cluster = clusters()
    run(cluster, "apply", "-f", folder)
    run(cluster, "group", "create", "other")
    found = yaml.safe_load(run(cluster, "export", "--label", "team=sales").stdout)
    assert {kind: len(listed) for kind, listed in found.items()} == {
        "groups": 1,
        "topics": 1,
        "subscriptions": 1,
        "workloadConstraints": 1,
    }
    assert yaml.safe_load(run(cluster, "export", "--group", "other").stdout) == {
        "groups": [{"groupName": "other"}]
    }


def test_changes_are_shown_field_by_field_without_secrets(clusters, run, folder, monkeypatch):
    cluster = clusters()
    run(cluster, "apply", "-f", folder)
    monkeypatch.setenv("SSO", "hunter9")
    text = (folder / "shop.yaml").read_text()
    (folder / "shop.yaml").write_text(text.replace("duration: 1", "duration: 3"))
    wider = {**ORDER, "fields": [*ORDER["fields"], {"name": "n", "type": "int", "default": 0}]}
    (folder / "schemas" / "order.avsc").write_text(json.dumps(wider))
    shown = run(cluster, "apply", "-f", folder, "--dry-run").stdout
    assert "~ oauth/providers/sso\n    clientSecret: ****** → (secret changed)\n" in shown
    assert "    retentionTime.duration: 1 → 3\n" in shown
    assert '    +      "name": "n",\n' in shown
    rows = json.loads(run(cluster, "apply", "-f", folder, "-o", "json").stdout)
    assert {each["resource"] for each in rows if each["action"] == "change"} == {
        "oauth/providers/sso",
        "topics/shop.orders",
    }


def test_each_error_names_file_line_item_and_field_before_anything_is_written(
    clusters, run, folder, monkeypatch
):
    cluster = clusters()
    monkeypatch.delenv("SSO")
    (folder / "a.yaml").write_text(
        "\n"
        "groups:\n- groupName: shop\n- gruopName: b\n"
        "subscriptions:\n- {topicName: shop.carts, name: x, endpiont: y}\n"
        "- {topicName: shop.carts, name: y, endpoint: 'http://u:*****@h/'}\n"
        "- {topicName: shop.carts, name: z, description: '${file:nothing}'}\n"
    )
    (folder / "b.yaml").write_text("topic: []")
    failed = run(cluster, "apply", "-f", folder)
    assert failed.exit_code == 2
    told = failed.stderr.replace(f"{folder}/", "").splitlines()
    for line in (
        "hermes: b.yaml cannot be read: topic is unknown; did you mean topics?",
        "hermes: a.yaml:4.groupName must be a name",
        (
            "hermes: a.yaml:6 topics/shop.carts/subscriptions/x: endpiont is unknown; "
            "did you mean endpoint?"
        ),
        "hermes: shop.yaml:6 groups/shop: is in a.yaml:3 already",
        "hermes: shop.yaml:3 sso: clientSecret: ${env:SSO}: the environment has no variable SSO",
    ):
        assert line in told
    assert (
        "a.yaml:7 topics/shop.carts/subscriptions/y: endpoint: asterisks are not the secret"
        in str(told)
    )
    assert "a.yaml:8 z: description: " in str(told)
    assert told[-1] == "hermes: nothing was done: 7 errors in the files"
    assert not cluster.metadata.catalog.groups


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("groups: [", "cannot be read"),
        ("groups: []\ngroups: []\n", "line 2: groups appears twice"),
        ("- a", "expected an object with lists of items"),
        ("on: push", "True is unknown; known are"),
        ("[a]: b", "cannot be read"),
    ],
)
def test_a_file_that_is_no_configuration_is_one_line(clusters, run, tmp_path, text, problem):
    (tmp_path / "a.yaml").write_text(text)
    failed = run(clusters(), "apply", "-f", tmp_path / "a.yaml")
    assert failed.exit_code == 2
    assert problem in failed.stderr


def test_hidden_files_and_folders_are_skipped(clusters, run, folder):
    (folder / ".github").mkdir()
    for name in (".github/ci.yml", ".hidden.yaml"):
        (folder / name).write_text("on: push")
    assert run(clusters(), "apply", "-f", folder).exit_code == 0


def test_refusals_of_the_server_name_the_place_and_fail_the_command(clusters, run, folder):
    cluster = clusters()
    text = (folder / "shop.yaml").read_text()
    (folder / "shop.yaml").write_text(
        text.replace("retentionTime: {duration: 2", "retentionTime: {duration: 0")
    )
    prune = ("--prune", "--label", "team=sales")
    failed = run(cluster, "apply", "-f", folder, *prune)
    assert failed.exit_code == 1
    assert "nothing was pruned" in failed.stderr
    assert run(cluster, "apply", "-f", folder, "--diff").exit_code == 2
    assert f"{folder}/shop.yaml:18 topics/shop.carts: Topic.retentionTime" in failed.stderr
    assert "audit: Skipped, because topics/shop.carts failed (OTHER)" in failed.stderr
    assert (
        failed.stdout.splitlines()[-1] == "6 created, 0 changed, 0 deleted, 0 unchanged, 2 failed"
    )


def test_what_has_the_label_and_is_in_no_file_is_deleted_after_a_confirmation(
    clusters, run, folder
):
    cluster = clusters()
    run(cluster, "apply", "-f", folder)
    (folder / "shop.yaml").write_text("groups: [{groupName: other}]")
    (folder / "later" / "billing.json").write_text("{}")
    prune = ("apply", "-f", folder, "--prune")
    assert run(cluster, *prune).exit_code == 2
    label = ("--label", "team=sales")
    shown = run(cluster, *prune, *label, "--diff")
    assert shown.exit_code == 2
    assert "- topics/shop.orders/subscriptions/billing\n- topics/shop.orders\n" in shown.stdout
    assert "groups/shop: Group shop is not empty" in shown.stderr
    assert run(cluster, *prune, *label).exit_code == 2
    assert len(cluster.metadata.catalog.topics) == 2
    done = run(cluster, *prune, *label, "--yes")
    assert done.stdout.splitlines()[-1].startswith("0 created, 0 changed, 2 deleted")
    assert [*cluster.metadata.catalog.topics] == ["shop.carts"]
    assert [*cluster.metadata.catalog.subscriptions] == ["shop.carts$audit"]


def test_no_items_prune_nothing_and_foreign_files_of_an_export_are_named(
    clusters, run, folder, tmp_path
):
    cluster = clusters()
    run(cluster, "apply", "-f", folder)
    (tmp_path / "empty.yaml").write_text("groups: []")
    prune = ("--prune", "--label", "team=sales", "--yes")
    refused = run(cluster, "apply", "-f", tmp_path / "empty.yaml", *prune)
    assert refused.exit_code == 2
    assert "--prune would delete everything" in refused.stderr
    (tmp_path / "out" / "groups").mkdir(parents=True)
    (tmp_path / "out" / "groups" / "gone.yaml").write_text("")
    assert (
        "groups/gone.yaml is not part of" in run(cluster, "export", "-o", tmp_path / "out").stderr
    )
    assert run(cluster, "export", "--group", "nonexistent").exit_code == 1


def test_the_loser_of_a_race_is_told(clusters, run, folder):
    cluster = clusters()
    run(cluster, "apply", "-f", folder)

    def change_back(of):
        of.request("PUT", "/topics/shop.carts", b'{"ack":"ALL"}')

    text = (folder / "shop.yaml").read_text()
    (folder / "shop.yaml").write_text(
        text.replace("description: two", "description: two\n  ack: NONE")
    )
    cluster.before = [None, change_back]
    done = run(cluster, "apply", "-f", folder)
    assert (done.exit_code, done.stdout.count("~")) == (0, 1), done.stderr
    assert "topics/shop.carts no longer matches the files: admin changed it at 2" in done.stderr


def test_a_configuration_of_several_requests_is_compared_as_a_whole(
    clusters, run, folder, monkeypatch
):
    monkeypatch.setattr("hermes_actors.cli.configuration.requests._ITEMS_MAX", 2)
    cluster = clusters()
    compared = run(cluster, "apply", "-f", folder, "--diff")
    assert "8 created, 0 changed, 0 deleted, 0 unchanged" in compared.stdout
    assert run(cluster, "apply", "-f", folder).stdout.count("+ ") == 8


@pytest.mark.slow
def test_a_backup_is_restored_exactly_into_an_empty_cluster_only(clusters, run, folder, tmp_path):
    lost, file = clusters(), tmp_path / "cluster.backup"
    run(lost, "apply", "-f", folder)
    run(lost, "topic", "delete", "shop.carts", "--yes")
    # The second life of a topic has another log topic, which a restored one must keep.
    run(lost, "subscription", "delete", "shop.carts", "audit", "--yes")
    run(lost, "topic", "delete", "shop.carts", "--yes")
    run(lost, "apply", "-f", folder)
    done = run(lost, "metadata", "backup", file)
    assert (done.exit_code, file.stat().st_mode & 0o777) == (0, 0o600)
    assert "1 group, 1 oauth, 1 schema, 1 subject, 2 subscription, 2 topic" in done.stdout
    assert run(lost, "metadata", "backup", file).exit_code == 1

    empty = clusters()
    restored = run(empty, "metadata", "restore", file)
    assert restored.exit_code == 0, restored.stderr
    assert "the cluster has everything in the backup, unchanged" in restored.stdout
    assert run(empty, "export").stdout == run(lost, "export").stdout
    old, new = lost.metadata.catalog, empty.metadata.catalog
    assert new.topics["shop.carts"].log_topic == old.topics["shop.carts"].log_topic != "shop.carts"
    assert (new.topics, new.subscriptions, new.oauth_providers) == (
        old.topics,
        old.subscriptions,
        old.oauth_providers,
    )
    assert (new.schemas, new.subjects) == (old.schemas, old.subjects)
    assert "; 10 were there already" in run(empty, "metadata", "restore", file).stdout

    other = clusters()
    run(other, "group", "create", "mine")
    refused = run(other, "metadata", "restore", file)
    assert refused.exit_code == 1
    assert "the cluster is not empty. It has group/mine, " in refused.stderr
    assert [*other.metadata.catalog.groups] == ["mine"]
    assert run(other, "metadata", "restore", file, "--force").exit_code == 0
    assert [*other.metadata.catalog.groups] == ["mine", "shop"]

    file.write_text(file.read_text()[:-100])
    assert run(clusters(), "metadata", "restore", file).exit_code == 2


@pytest.mark.slow
def test_500_topics_and_2000_subscriptions_are_applied_once_and_restored(
    clusters, run, tmp_path, monkeypatch
):
    owner = {"source": "Plaintext", "id": "sales"}
    for group in range(20):
        topics = [
            {
                "name": f"g{group}.t{at}",
                "description": "",
                "owner": owner,
                "contentType": "JSON",
                "retentionTime": {"duration": 1},
                **({} if at % 5 else {"schema": {"type": "object", "title": f"{group} {at}"}}),
            }
            for at in range(25)
        ]
        subscriptions = [
            {
                "topicName": topic["name"],
                "name": f"s{at}",
                "endpoint": f"https://ada:${{env:PW}}@sink.example.com/{at}",
                "description": "",
                "owner": owner,
            }
            for topic in topics
            for at in range(4)
        ]
        lists = {"groups": [{"groupName": f"g{group}"}], "topics": topics}
        text = json.dumps({**lists, "subscriptions": subscriptions})
        (tmp_path / f"g{group}.json").write_text(text)
    monkeypatch.setenv("PW", "hunter2")
    lost, empty, file = clusters(), clusters(), tmp_path / "backup"
    for created, same in ((2520, 0), (0, 2520)):
        done = run(lost, "apply", "-f", tmp_path)
        assert done.stdout.splitlines()[-1] == (
            f"{created} created, 0 changed, 0 deleted, {same} unchanged"
        )
    assert run(lost, "metadata", "backup", file).exit_code == 0
    restored = run(empty, "metadata", "restore", file)
    assert restored.exit_code == 0, restored.stderr
    assert run(empty, "export").stdout == run(lost, "export").stdout
    assert empty.metadata.catalog.schemas == lost.metadata.catalog.schemas
