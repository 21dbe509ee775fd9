terraform {
  required_version = ">= 1.9"

  required_providers {
    hosts = {
      source  = "lowtide.local/lowtide/hosts"
      version = "0.1.0"
    }
  }

  # The state holds the cluster's secrets; only root reads this folder of the clone.
  backend "local" {
    path = "../../../.lowtide/cluster/terraform.tfstate"
  }
}
