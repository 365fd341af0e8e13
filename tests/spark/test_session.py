import importlib.util

import pytest

from hermes_local.failures import LaunchFailed
from hermes_spark import session
from hermes_spark.jars import SPARK


def test_without_java_the_way_out_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    with pytest.raises(LaunchFailed, match=r"Spark needs Java, and .*; install a JDK 17 or newer"):
        session.require_spark({"PATH": str(tmp_path)})


def test_without_the_extra_the_way_out_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(LaunchFailed, match=r"need pyspark, .*run 'make spark', or pip install"):
        session.require_spark()


def test_a_checkout_keeps_sparks_jars_to_itself():
    assert SPARK.cache_folder({}).parent == SPARK.pom.parents[2] / ".cache" / "spark"


def test_a_session_speaks_utc_and_reads_kafka_and_avro(spark):
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sql("SELECT timestamp_millis(0)::string AS t").first().t == "1970-01-01 00:00:00"
    names = spark.sparkContext._jvm.scala.jdk.javaapi.CollectionConverters.asJava(
        spark.sparkContext._jsc.sc().listJars()
    )
    assert {"kafka-clients", "spark-avro_2.13"} <= {
        str(each).rpartition("/")[2].rpartition("-")[0] for each in names
    }
