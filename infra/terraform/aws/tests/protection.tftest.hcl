# infra/check.py runs this twice: as it is, where the end has to fail, and after `unprotect`.

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

run "all_is_made_and_destroyed" {}
