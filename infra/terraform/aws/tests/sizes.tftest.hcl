# A size's file fits the variables: infra/check.py runs this with each of sizes/.

mock_provider "aws" {
  source = "./tests/mocks"
}

variables {
  bucket             = "example-lowtide"
  kafka_passwords    = { jobs = "k-0123456789012345678901234567", admin = "a-0123456789012345678901234567" }
  zookeeper_password = "z-0123456789012345678901234567"
  control_token      = "c-0123456789012345678901234567"
  airflow            = { existing = { role_name = "airflow", security_group_id = "sg-0a" } }
  software = {
    environment  = { file = "tests/software/environment.tar.gz" }
    zookeeper    = { file = "tests/software/zookeeper.tar.gz" }
    certificates = { file = "tests/software/certificates.zip" }
  }
}

run "size" {
  assert {
    condition     = contains(split("\n", output.conf), "parallelism = ${var.spark_workers}") && length(split(",", output.hosts.zookeeper)) == var.zookeeper_nodes
    error_message = "The conf does not have the size's parallelism, or not its number of ZooKeeper servers."
  }
}
