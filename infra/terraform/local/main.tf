# A cluster on this machine: every host has namespaces and an address of its own. See infra/README.md.

locals {
  # On the host `services` there is one of each.
  zookeepers = var.small ? ["services"] : [for n in range(var.zookeeper_nodes) : "zookeeper-${n + 1}"]
  brokers    = var.small ? ["services"] : [for n in range(var.kafka_brokers) : "kafka-${n + 1}"]
  store      = var.small ? "services" : "store"
  master     = var.small ? "services" : "${var.spark_prefix}master"
  workers    = [for n in range(var.small ? 1 : var.spark_workers) : "${var.spark_prefix}worker-${n + 1}"]
  driver     = "${var.spark_prefix}driver"
  airflow    = var.airflow && !var.small
  # Other hosts have other addresses: those before them may still be there.
  moved = var.spark_prefix == "" ? 0 : 41

  java   = { java = var.software.java }
  zoo    = merge(local.java, { zookeeper = var.software.zookeeper })
  kafka  = merge(local.java, { kafka = var.software.kafka })
  spark  = merge(local.java, { spark = var.software.spark })
  jobs   = merge(local.spark, { lowtide = var.software.lowtide })
  s3     = { s3 = var.software.s3_server }
  others = { for n, name in local.workers : name => { number = 40 + local.moved + n, mounts = local.spark } }

  hosts = merge(local.others, { (local.driver) = { number = 70 + local.moved, mounts = local.jobs } }, var.small ? {
    services = { number = 10, mounts = merge(local.zoo, local.kafka, local.spark, local.s3) }
    } : merge(
    { for n, name in local.zookeepers : name => { number = 10 + n, mounts = local.zoo } },
    { for n, name in local.brokers : name => { number = 20 + n, mounts = local.kafka } },
    {
      store          = { number = 30, mounts = local.s3 }
      (local.master) = { number = 39 + local.moved, mounts = local.spark }
    },
    local.airflow ? { airflow = { number = 71, mounts = { airflow = var.software.airflow } } } : {},
  ))
}

resource "hosts_certificate" "authority" {
  names = ["${var.name}'s authority"]
}

module "network" {
  source = "./modules/network"

  name  = var.name
  cidr  = var.cidr
  hosts = { for name, host in local.hosts : name => merge(host, { hidden = var.software.hidden }) }
}

module "zookeeper" {
  source = "./modules/zookeeper"

  network = module.network.network
  hosts   = local.zookeepers
}

module "kafka" {
  source = "./modules/kafka"

  network   = module.network.network
  hosts     = local.brokers
  optimises = var.kafka_optimises
  authority = { certificate = hosts_certificate.authority.certificate, key = hosts_certificate.authority.key }
}

module "object_store" {
  source = "./modules/object-store"

  network   = module.network.network
  host      = local.store
  authority = { certificate = hosts_certificate.authority.certificate, key = hosts_certificate.authority.key }
}

module "spark" {
  source = "./modules/spark"

  network = module.network.network
  master  = local.master
  workers = local.workers
  cores   = var.spark_worker_cores
  store   = { credentials = module.object_store.credentials, authority = hosts_certificate.authority.certificate }
}

# Where jobs are started from: what they need to know, and nobody else's secrets.

resource "hosts_secret" "zookeeper" {
  name = "the jobs' nodes in ZooKeeper"
}

resource "hosts_secret" "token" {
  name = "the jobs' control API"
}

locals {
  conf = templatefile("${path.module}/cluster.toml.tftpl", {
    bootstrap_servers = module.kafka.bootstrap_servers
    security          = module.kafka.security
    zookeeper         = module.zookeeper.hosts
    master            = module.spark.master
    url               = module.object_store.url
    endpoint          = module.object_store.endpoint
    workers           = length(local.workers)
    cores             = var.spark_worker_cores
  })
  submitter = {
    "cluster.toml"              = local.conf
    "ca.pem"                    = hosts_certificate.authority.certificate
    "kafka-password"            = module.kafka.password
    "token"                     = hosts_secret.token.hex
    "zookeeper-auth"            = "lowtide:${hosts_secret.zookeeper.hex}"
    "aws/credentials"           = module.object_store.credentials
    "spark/spark-defaults.conf" = module.spark.defaults
    "profile"                   = file("${path.module}/profile")
  }
}

resource "hosts_files" "driver" {
  network = module.network.network.name
  host    = local.driver
  boot    = module.network.network.hosts[local.driver].boot
  name    = "lowtide"
  files   = local.submitter
}

module "airflow" {
  source = "./modules/airflow"
  count  = local.airflow ? 1 : 0

  network = module.network.network
  host    = "airflow"
  jobs    = file("${path.module}/jobs.toml")
  connection = {
    zookeeper      = module.zookeeper.hosts
    zookeeper_auth = "lowtide:${hosts_secret.zookeeper.hex}"
    token          = hosts_secret.token.hex
    url            = "${module.object_store.url}/jobs"
    endpoint       = module.object_store.endpoint
  }
  store = { credentials = module.object_store.credentials, authority = hosts_certificate.authority.certificate }
}
