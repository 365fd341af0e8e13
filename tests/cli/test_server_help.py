"""`hermes dev --help` and `hermes node --help` read like the other commands' help."""


def test_the_help_of_dev_ends_with_examples_below_the_options(hermes) -> None:
    after_options = hermes("dev", "--help").stdout.partition("─ Options ")[2]
    assert "hermes dev --json --ephemeral" in after_options.partition("Examples:")[2]


def test_the_help_of_dev_has_no_line_that_breaks_off_and_is_indented(hermes) -> None:
    text = hermes("dev", "--help").stdout.partition("─ Options ")[0]
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) > 3
    assert not [line for line in lines if line.startswith("     ")]


def test_the_help_of_node_loses_no_word_to_its_markup(hermes) -> None:
    words = " ".join(hermes("node", "--help").stdout.split())
    assert "With kafka.clusters in its configuration it stores in Kafka" in words
