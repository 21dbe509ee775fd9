output "name" {
  description = "The cluster's name."
  value       = var.name
}

output "conf" {
  description = "Lowtide's conf for jobs on this cluster; it names its secrets' files and holds none."
  value       = local.conf
}

output "hosts" {
  description = "Where ZooKeeper's servers are, and the host of YARN's master."
  value       = { zookeeper = module.zookeeper.hosts, spark = module.spark.cluster.host }
}

output "submitter" {
  description = "What a host needs to start jobs: EMR's id of the cluster, Kafka's users, and where the software and the secrets lie."
  value = {
    cluster     = module.spark.cluster
    users       = module.kafka.users
    environment = "s3://${local.bucket.name}/${local.software.environment}"
    secrets     = { kafka = module.kafka.password, zookeeper = aws_secretsmanager_secret.this["zookeeper"].arn, control = aws_secretsmanager_secret.this["control"].arn }
  }
}

output "airflow" {
  description = "Airflow's connection without its secrets, the secret that holds it whole, and Airflow's page if it was made here."
  value = {
    connection = module.airflow.connection
    secret     = module.airflow.connection_secret
    url        = module.airflow.url
  }
}
