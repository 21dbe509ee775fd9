"""All checks, in the order in which one would mend things."""

from lowtide.doctor.check import Check
from lowtide.doctor.clock import clock
from lowtide.doctor.folders import folders
from lowtide.doctor.interpreter import pyspark, pyspark_python, python
from lowtide.doctor.jars import class_archives, own_jar, third_party_jars
from lowtide.doctor.java import java
from lowtide.doctor.kafka import broker, topics
from lowtide.doctor.machine import memory, slots
from lowtide.doctor.network import loopback, ports
from lowtide.doctor.store import store
from lowtide.doctor.zookeeper import zookeeper

CHECKS = (
    Check("java", java),
    Check("python", python),
    Check("PYSPARK_PYTHON", pyspark_python),
    Check("pyspark", pyspark),
    Check("jars", third_party_jars),
    Check("shim jar", own_jar),
    Check("class archives", class_archives),
    Check("memory", memory),
    Check("folders", folders),
    Check("loopback", loopback),
    Check("ports", ports),
    Check("broker", broker),
    Check("topics", topics),
    Check("slots", slots),
    Check("zookeeper", zookeeper),
    Check("store", store),
    Check("clock", clock),
)
