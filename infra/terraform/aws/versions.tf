terraform {
  required_version = ">= 1.11"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.25, <= 6.28"
    }
  }

  # Where the state lies is said at `terraform init -backend-config=backend.hcl`; backend.hcl.example shows how.
  backend "s3" {
    key          = "lowtide/terraform.tfstate"
    encrypt      = true
    use_lockfile = true
  }
}

provider "aws" {
  region = var.region

  default_tags {
    tags = merge(var.tags, { lowtide = var.name })
  }
}
