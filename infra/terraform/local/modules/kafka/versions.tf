terraform {
  required_version = ">= 1.9"

  required_providers {
    hosts = {
      source  = "lowtide.local/lowtide/hosts"
      version = "0.1.0"
    }
  }
}
