# For production: any one host may be lost.
kafka_brokers        = 3
kafka_broker_type    = "kafka.m7g.xlarge"
kafka_disk_gb        = 500
kafka_disk_max_gb    = 2000
zookeeper_nodes      = 3
zookeeper_type       = "t4g.medium"
spark_masters        = 3
spark_master_type    = "m7g.xlarge"
spark_workers        = 4
spark_worker_type    = "m7g.2xlarge"
spark_worker_cores   = 6
spark_worker_disk_gb = 128
executor_memory      = "8g"
