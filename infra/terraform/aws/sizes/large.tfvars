# For much data: twelve workers, and Kafka on six brokers.
kafka_brokers        = 6
kafka_broker_type    = "kafka.m7g.2xlarge"
kafka_disk_gb        = 2000
kafka_disk_max_gb    = 8000
zookeeper_nodes      = 5
zookeeper_type       = "m7g.large"
spark_masters        = 3
spark_master_type    = "m7g.2xlarge"
spark_workers        = 12
spark_worker_type    = "m7g.4xlarge"
spark_worker_cores   = 14
spark_worker_disk_gb = 256
executor_memory      = "24g"
