# YARN and HDFS on EMR. Spark itself, of Lowtide's version, comes with the packed environment that every host unpacks.
# All connections of Spark are authenticated and encrypted.

data "aws_caller_identity" "this" {}

data "aws_partition" "this" {}

data "aws_region" "this" {}

locals {
  defaults = {
    "spark.authenticate"           = "true"
    "spark.network.crypto.enabled" = "true"
    "spark.io.encryption.enabled"  = "true"
    "spark.pyspark.python"         = "/opt/lowtide/environment/bin/python"
    "spark.pyspark.driver.python"  = "/opt/lowtide/environment/bin/python"
  }
  bootstrap = templatefile("${path.module}/bootstrap.sh.tftpl", {
    environment = "s3://${var.bucket.name}/${var.software.environment}"
    sha256      = var.software.environment_sha256
    secrets     = var.secrets
    region      = data.aws_region.this.region
  })
  # What the policies that AWS manages for EMR look for.
  managed = { "for-use-with-amazon-emr-managed-policies" = "true" }
  # Where a submitter connects to: YARN, HDFS's names, HDFS's data, and jobs' control APIs.
  control = "${var.control_ports.first}-${var.control_ports.first + var.control_ports.jobs - 1}"
  submitted = {
    for entry in setproduct(keys(var.clients), ["8032-8032", "8020-8020", "9866-9866", local.control]) :
    "${entry[0]}-${entry[1]}" => { client = entry[0], from = split("-", entry[1])[0], to = split("-", entry[1])[1] }
  }
}

# Security groups. EMR itself adds what it misses in them, so all that it wants is here.

resource "aws_security_group" "this" {
  name                   = "${var.network.name}-spark"
  description            = "Hosts of YARN, HDFS and Spark"
  vpc_id                 = var.network.vpc_id
  revoke_rules_on_delete = true

  tags = merge(local.managed, { Name = "${var.network.name}-spark" })
}

resource "aws_security_group" "service" {
  name                   = "${var.network.name}-emr-service"
  description            = "EMR's own access to its hosts"
  vpc_id                 = var.network.vpc_id
  revoke_rules_on_delete = true

  tags = merge(local.managed, { Name = "${var.network.name}-emr-service" })
}

resource "aws_vpc_security_group_ingress_rule" "among_themselves" {
  security_group_id            = aws_security_group.this.id
  description                  = "The cluster's own hosts"
  ip_protocol                  = "-1"
  referenced_security_group_id = aws_security_group.this.id
}

resource "aws_vpc_security_group_egress_rule" "among_themselves" {
  security_group_id            = aws_security_group.this.id
  description                  = "The cluster's own hosts"
  ip_protocol                  = "-1"
  referenced_security_group_id = aws_security_group.this.id
}

resource "aws_vpc_security_group_egress_rule" "servers" {
  for_each = var.servers

  security_group_id            = aws_security_group.this.id
  description                  = "To ${each.key}"
  ip_protocol                  = "tcp"
  from_port                    = each.value.port
  to_port                      = each.value.port
  referenced_security_group_id = each.value.security_group_id
}

resource "aws_vpc_security_group_egress_rule" "services" {
  security_group_id = aws_security_group.this.id
  description       = "To services of AWS"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  cidr_ipv4         = var.network.services_cidr
}

resource "aws_vpc_security_group_egress_rule" "s3" {
  security_group_id = aws_security_group.this.id
  description       = "To S3"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  prefix_list_id    = var.s3_prefix_list
}

resource "aws_vpc_security_group_egress_rule" "to_service" {
  security_group_id            = aws_security_group.this.id
  description                  = "To EMR"
  ip_protocol                  = "tcp"
  from_port                    = 9443
  to_port                      = 9443
  referenced_security_group_id = aws_security_group.service.id
}

resource "aws_vpc_security_group_ingress_rule" "from_service" {
  security_group_id            = aws_security_group.this.id
  description                  = "From EMR"
  ip_protocol                  = "tcp"
  from_port                    = 8443
  to_port                      = 8443
  referenced_security_group_id = aws_security_group.service.id
}

resource "aws_vpc_security_group_ingress_rule" "service" {
  security_group_id            = aws_security_group.service.id
  description                  = "From the cluster's hosts"
  ip_protocol                  = "tcp"
  from_port                    = 9443
  to_port                      = 9443
  referenced_security_group_id = aws_security_group.this.id
}

resource "aws_vpc_security_group_egress_rule" "service" {
  security_group_id            = aws_security_group.service.id
  description                  = "To the cluster's hosts"
  ip_protocol                  = "tcp"
  from_port                    = 8443
  to_port                      = 8443
  referenced_security_group_id = aws_security_group.this.id
}

resource "aws_vpc_security_group_ingress_rule" "clients" {
  for_each = local.submitted

  security_group_id            = aws_security_group.this.id
  description                  = "From ${each.value.client}"
  ip_protocol                  = "tcp"
  from_port                    = each.value.from
  to_port                      = each.value.to
  referenced_security_group_id = var.clients[each.value.client]
}

# What jobs may do.

resource "aws_iam_role" "job" {
  name = "${var.network.name}-job"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role_policy" "job" {
  name = "job"
  role = aws_iam_role.job.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "Snapshots"
        Effect   = "Allow"
        Action   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
        Resource = ["${var.bucket.arn}/${var.bucket.prefix}jobs/*"]
      },
      {
        Sid      = "Software"
        Effect   = "Allow"
        Action   = ["s3:GetObject"]
        Resource = ["${var.bucket.arn}/${var.bucket.prefix}software/*"]
      },
      {
        Sid      = "Logs"
        Effect   = "Allow"
        Action   = ["s3:PutObject"]
        Resource = ["${var.bucket.arn}/${var.bucket.prefix}logs/*"]
      },
      {
        Sid       = "Names"
        Effect    = "Allow"
        Action    = ["s3:ListBucket"]
        Resource  = [var.bucket.arn]
        Condition = { StringLike = { "s3:prefix" = [for name in ["jobs", "jobs/*", "software/*", "logs/*"] : "${var.bucket.prefix}${name}"] } }
      },
      {
        Sid      = "Secrets"
        Effect   = "Allow"
        Action   = ["secretsmanager:GetSecretValue"]
        Resource = values(var.secrets)
      },
      {
        Sid      = "Key"
        Effect   = "Allow"
        Action   = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"]
        Resource = var.bucket.key_arns
      },
    ]
  })
}

resource "aws_iam_instance_profile" "job" {
  name = "${var.network.name}-job"
  role = aws_iam_role.job.name
}

# What EMR may do to make and mend the cluster.

resource "aws_iam_role" "service" {
  name = "${var.network.name}-emr-service"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "elasticmapreduce.amazonaws.com" }
      Condition = { StringEquals = { "aws:SourceAccount" = data.aws_caller_identity.this.account_id } }
    }]
  })
}

resource "aws_iam_role_policy_attachment" "service" {
  role       = aws_iam_role.service.name
  policy_arn = "arn:${data.aws_partition.this.partition}:iam::aws:policy/service-role/AmazonEMRServicePolicy_v2"
}

resource "aws_iam_role_policy" "service" {
  name = "job"
  role = aws_iam_role.service.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "GiveHostsTheirRole"
        Effect    = "Allow"
        Action    = ["iam:PassRole"]
        Resource  = [aws_iam_role.job.arn]
        Condition = { StringLike = { "iam:PassedToService" = "ec2.amazonaws.com*" } }
      },
      {
        Sid      = "EncryptDisks"
        Effect   = "Allow"
        Action   = ["kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo"]
        Resource = [var.bucket.key_arn]
      },
      {
        Sid       = "LendKeyToDisks"
        Effect    = "Allow"
        Action    = ["kms:CreateGrant"]
        Resource  = [var.bucket.key_arn]
        Condition = { Bool = { "kms:GrantIsForAWSResource" = "true" } }
      },
    ]
  })
}

resource "aws_emr_security_configuration" "this" {
  name = var.network.name
  configuration = jsonencode({
    EncryptionConfiguration = {
      EnableInTransitEncryption = true
      EnableAtRestEncryption    = true
      InTransitEncryptionConfiguration = {
        TLSCertificateConfiguration = {
          CertificateProviderType = "PEM"
          S3Object                = "s3://${var.bucket.name}/${var.software.certificates}"
        }
      }
      AtRestEncryptionConfiguration = {
        S3EncryptionConfiguration = { EncryptionMode = "SSE-KMS", AwsKmsKey = var.bucket.key_arn }
        LocalDiskEncryptionConfiguration = {
          EncryptionKeyProviderType = "AwsKms"
          AwsKmsKey                 = var.bucket.key_arn
          EnableEbsEncryption       = true
        }
      }
    }
    InstanceMetadataServiceConfiguration = {
      MinimumInstanceMetadataServiceVersion = 2
      HttpPutResponseHopLimit               = 1
    }
  })
}

resource "aws_s3_object" "bootstrap" {
  bucket                 = var.bucket.name
  key                    = "${var.bucket.prefix}software/bootstrap-${substr(sha256(local.bootstrap), 0, 12)}.sh"
  content                = local.bootstrap
  server_side_encryption = "aws:kms"
  kms_key_id             = var.bucket.key_arn
}

resource "aws_emr_cluster" "this" {
  name                              = var.network.name
  release_label                     = var.release
  applications                      = ["Hadoop"]
  service_role                      = aws_iam_role.service.arn
  security_configuration            = aws_emr_security_configuration.this.name
  log_uri                           = "s3://${var.bucket.name}/${var.bucket.prefix}logs/"
  keep_job_flow_alive_when_no_steps = true
  termination_protection            = var.protected
  unhealthy_node_replacement        = true
  scale_down_behavior               = "TERMINATE_AT_TASK_COMPLETION"

  ec2_attributes {
    subnet_id                         = var.network.subnets[0].id
    instance_profile                  = aws_iam_instance_profile.job.arn
    emr_managed_master_security_group = aws_security_group.this.id
    emr_managed_slave_security_group  = aws_security_group.this.id
    service_access_security_group     = aws_security_group.service.id
  }

  master_instance_group {
    name           = "master"
    instance_type  = var.master.instance_type
    instance_count = var.master.count
  }

  core_instance_group {
    name           = "workers"
    instance_type  = var.workers.instance_type
    instance_count = var.workers.count

    ebs_config {
      type                 = "gp3"
      size                 = var.workers.disk_gb
      volumes_per_instance = 1
    }
  }

  bootstrap_action {
    name = "lowtide"
    path = "s3://${aws_s3_object.bootstrap.bucket}/${aws_s3_object.bootstrap.key}"
  }

  tags = merge(local.managed, { Name = var.network.name })

  depends_on = [
    aws_iam_role_policy.job,
    aws_iam_role_policy.service,
    aws_iam_role_policy_attachment.service,
    aws_vpc_security_group_egress_rule.among_themselves,
    aws_vpc_security_group_egress_rule.servers,
    aws_vpc_security_group_egress_rule.s3,
    aws_vpc_security_group_egress_rule.service,
    aws_vpc_security_group_egress_rule.services,
    aws_vpc_security_group_egress_rule.to_service,
    aws_vpc_security_group_ingress_rule.among_themselves,
    aws_vpc_security_group_ingress_rule.from_service,
    aws_vpc_security_group_ingress_rule.service,
  ]
}
