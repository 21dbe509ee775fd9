# A size's file fits the variables: infra/check.py runs this with each of sizes/.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  bucket             = "example-lowtide"
  kafka_password     = "k-0123456789012345678901234567"
  zookeeper_password = "z-0123456789012345678901234567"
  control_token      = "c-0123456789012345678901234567"
  airflow            = { existing = { role_name = "airflow", security_group_id = "sg-0a" } }
  software = {
    environment        = "software/environment.tar.gz"
    environment_sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
    zookeeper          = "software/apache-zookeeper-3.9.4-bin.tar.gz"
    zookeeper_sha512   = "00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
  }
}

run "size" {
  assert {
    condition     = contains(split("\n", output.conf), "parallelism = ${var.spark_workers}") && length(split(",", output.hosts.zookeeper)) == var.zookeeper_nodes
    error_message = "The conf does not have the size's parallelism, or not its number of ZooKeeper servers."
  }
}
