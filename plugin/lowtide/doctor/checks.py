"""All checks, in the order in which one would fix things."""

from lowtide.doctor.check import Check
from lowtide.doctor.installation import class_archives, java, own_jar, pyspark, pyspark_python, python, third_party_jars
from lowtide.doctor.machine import folders, loopback, memory, ports, slots, state, tracker
from lowtide.doctor.network import network
from lowtide.doctor.services import broker, clock, store, topics, transactions, zookeeper
from lowtide.doctor.stores import files, postgres, puts, tables
from lowtide.doctor.traces import traces

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
    Check("state", state),
    Check("loopback", loopback),
    Check("ports", ports),
    Check("broker", broker),
    Check("transactions", transactions),
    Check("topics", topics),
    Check("slots", slots),
    Check("tracker", tracker),
    Check("zookeeper", zookeeper),
    Check("store", store),
    Check("PostgreSQL", postgres),
    Check("puts", puts),
    Check("files", files),
    Check("tables", tables),
    Check("clock", clock),
    Check("network", network),
    Check("traces", traces),
)
