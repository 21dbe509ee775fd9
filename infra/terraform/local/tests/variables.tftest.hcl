# What a cluster on this machine refuses, and what it is made of. Nothing is applied.

mock_provider "hosts" {}

variables {
  software = {
    java      = "/java"
    spark     = "/spark"
    kafka     = "/kafka"
    zookeeper = "/zookeeper"
    s3_server = "/s3"
    lowtide   = "/lowtide"
    airflow   = "/airflow"
    hidden    = ["/clone"]
  }
}

run "a_name_is_short_and_plain" {
  command = plan
  variables {
    name = "Not a name"
  }
  expect_failures = [var.name]
}

run "a_network_has_room" {
  command = plan
  variables {
    cidr = "10.77.0.0/28"
  }
  expect_failures = [var.cidr]
}

run "there_is_a_broker" {
  command = plan
  variables {
    kafka_brokers = 0
  }
  expect_failures = [var.kafka_brokers]
}

run "zookeeper_has_a_majority" {
  command = plan
  variables {
    zookeeper_nodes = 2
  }
  expect_failures = [var.zookeeper_nodes]
}

run "there_is_a_worker" {
  command = plan
  variables {
    spark_workers = 0
  }
  expect_failures = [var.spark_workers]
}

run "a_worker_runs_two_tasks" {
  command = plan
  variables {
    spark_worker_cores = 1
  }
  expect_failures = [var.spark_worker_cores]
}

run "a_prefix_ends_with_a_dash" {
  command = plan
  variables {
    spark_prefix = "other"
  }
  expect_failures = [var.spark_prefix]
}

run "a_small_cluster_stays_where_it_is" {
  command = plan
  variables {
    small        = true
    spark_prefix = "other-"
  }
  expect_failures = [var.small]
}

run "a_small_cluster_is_three_hosts" {
  command = plan
  variables {
    small = true
  }
  assert {
    condition     = toset(keys(module.network.network.hosts)) == toset(["services", "worker-1", "driver"])
    error_message = "There are others than services, a worker and the driver's."
  }
  assert {
    condition     = join(" ", keys(local.hosts.services.mounts)) == "java kafka s3 spark zookeeper" && join(" ", keys(local.hosts["worker-1"].mounts)) == "java spark"
    error_message = "A host lacks what it runs, or has more."
  }
}

run "sizes_make_hosts" {
  command = plan
  variables {
    kafka_brokers   = 1
    zookeeper_nodes = 1
    spark_workers   = 4
    airflow         = false
  }
  assert {
    condition     = length(module.network.network.hosts) == 9
    error_message = "One broker, one ZooKeeper, four workers, and store, master and driver."
  }
  assert {
    condition     = !contains(keys(module.network.network.hosts), "airflow")
    error_message = "Airflow was not wanted."
  }
}

run "topics_are_kept_on_three" {
  command = apply
  assert {
    condition     = strcontains(output.conf, "kafka-1:9092,kafka-2:9092,kafka-3:9092")
    error_message = "Clients are given all brokers."
  }
  assert {
    condition     = strcontains(output.conf, "SASL_SSL") && !strcontains(output.conf, "password =")
    error_message = "Clients log in over TLS, and no secret is in the conf."
  }
}
