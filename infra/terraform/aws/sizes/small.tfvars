# For trying it out: one master, which must not be lost; two workers.
kafka_brokers        = 3
kafka_broker_type    = "kafka.m7g.large"
kafka_disk_gb        = 100
kafka_disk_max_gb    = 500
zookeeper_nodes      = 3
zookeeper_type       = "t4g.small"
spark_masters        = 1
spark_master_type    = "m7g.xlarge"
spark_workers        = 2
spark_worker_type    = "m7g.xlarge"
spark_worker_cores   = 3
spark_worker_disk_gb = 64
executor_memory      = "4g"
