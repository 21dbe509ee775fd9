# Airflow's rights and its connection to Lowtide; and Airflow itself, as MWAA, unless there is one.

data "aws_caller_identity" "this" {}

data "aws_partition" "this" {}

data "aws_region" "this" {}

locals {
  make   = var.mwaa != null
  role   = local.make ? aws_iam_role.mwaa[0].name : var.existing.role_name
  group  = local.make ? aws_security_group.mwaa[0].id : var.existing.security_group_id
  where  = "${data.aws_region.this.region}:${data.aws_caller_identity.this.account_id}"
  arn    = "arn:${data.aws_partition.this.partition}"
  prefix = "${var.network.name}/connections"
  folder = "${var.bucket.prefix}software/airflow"
  connection = {
    conn_type = "lowtide"
    host      = var.zookeeper
    extra = {
      snapshots_url = "s3://${var.bucket.name}/${var.bucket.prefix}jobs"
      s3_region     = data.aws_region.this.region
      spark_submit  = "spark-submit"
    }
  }
}

# The connection as Airflow's Secrets Manager backend reads it.
resource "aws_secretsmanager_secret" "connection" {
  # checkov:skip=CKV2_AWS_57:The same secrets are in the jobs' files; the README says how they are changed together.
  name                    = "${local.prefix}/lowtide_default"
  description             = "Airflow's connection to Lowtide's jobs"
  kms_key_id              = var.bucket.key_arn
  recovery_window_in_days = 7
}

resource "aws_secretsmanager_secret_version" "connection" {
  secret_id = aws_secretsmanager_secret.connection.id
  secret_string_wo = jsonencode(merge(local.connection, {
    password = var.control_token
    extra    = merge(local.connection.extra, { zookeeper_password = var.zookeeper_auth })
  }))
  secret_string_wo_version = var.secrets_version
}

resource "aws_iam_role_policy" "jobs" {
  name = "${var.network.name}-jobs"
  role = local.role
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "Snapshots"
        Effect   = "Allow"
        Action   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"]
        Resource = ["${var.bucket.arn}/${var.bucket.prefix}jobs/*"]
      },
      {
        Sid       = "Names"
        Effect    = "Allow"
        Action    = ["s3:ListBucket"]
        Resource  = [var.bucket.arn]
        Condition = { StringLike = { "s3:prefix" = ["${var.bucket.prefix}jobs", "${var.bucket.prefix}jobs/*"] } }
      },
      {
        Sid      = "Connection"
        Effect   = "Allow"
        Action   = ["secretsmanager:GetSecretValue"]
        Resource = [aws_secretsmanager_secret.connection.arn]
      },
      {
        Sid      = "Key"
        Effect   = "Allow"
        Action   = ["kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey"]
        Resource = var.bucket.key_arns
      },
      {
        Sid    = "Cluster"
        Effect = "Allow"
        Action = [
          "elasticmapreduce:AddJobFlowSteps", "elasticmapreduce:CancelSteps", "elasticmapreduce:DescribeCluster",
          "elasticmapreduce:DescribeStep", "elasticmapreduce:ListInstances", "elasticmapreduce:ListSteps",
        ]
        Resource = [var.cluster.arn]
      },
    ]
  })
}

# MWAA.

resource "aws_security_group" "mwaa" {
  count = local.make ? 1 : 0

  name        = "${var.network.name}-airflow"
  description = "Airflow"
  vpc_id      = var.network.vpc_id

  tags = { Name = "${var.network.name}-airflow" }
}

resource "aws_vpc_security_group_ingress_rule" "mwaa" {
  count = local.make ? 1 : 0

  security_group_id            = aws_security_group.mwaa[0].id
  description                  = "Airflow's own hosts"
  ip_protocol                  = "-1"
  referenced_security_group_id = aws_security_group.mwaa[0].id
}

resource "aws_vpc_security_group_egress_rule" "mwaa" {
  count = local.make ? 1 : 0

  security_group_id = aws_security_group.mwaa[0].id
  description       = "To this network"
  ip_protocol       = "-1"
  cidr_ipv4         = var.network.cidr
}

resource "aws_vpc_security_group_egress_rule" "services" {
  count = local.make && var.network.services_cidr != var.network.cidr ? 1 : 0

  security_group_id = aws_security_group.mwaa[0].id
  description       = "To services of AWS"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  cidr_ipv4         = var.network.services_cidr
}

resource "aws_vpc_security_group_egress_rule" "s3" {
  count = local.make ? 1 : 0

  security_group_id = aws_security_group.mwaa[0].id
  description       = "To S3"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  prefix_list_id    = var.s3_prefix_list
}

resource "aws_iam_role" "mwaa" {
  count = local.make ? 1 : 0

  name = "${var.network.name}-airflow"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = ["airflow.amazonaws.com", "airflow-env.amazonaws.com"] }
      Condition = { StringEquals = { "aws:SourceAccount" = data.aws_caller_identity.this.account_id } }
    }]
  })
}

# What MWAA asks of its role. Two of its calls take no resource; AWS documents them with "*".
resource "aws_iam_role_policy" "mwaa" {
  count = local.make ? 1 : 0

  name = "mwaa"
  role = aws_iam_role.mwaa[0].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid      = "ReportHealth"
        Effect   = "Allow"
        Action   = ["airflow:PublishMetrics"]
        Resource = ["${local.arn}:airflow:${local.where}:environment/${var.network.name}"]
      },
      {
        Sid      = "ReadFiles"
        Effect   = "Allow"
        Action   = ["s3:GetObject", "s3:GetObjectVersion"]
        Resource = ["${var.bucket.arn}/${local.folder}/*"]
      },
      {
        Sid       = "FindFiles"
        Effect    = "Allow"
        Action    = ["s3:ListBucket"]
        Resource  = [var.bucket.arn]
        Condition = { StringLike = { "s3:prefix" = ["${local.folder}/*"] } }
      },
      {
        Sid      = "SeeThatTheBucketIsPrivate"
        Effect   = "Allow"
        Action   = ["s3:GetBucketPublicAccessBlock", "s3:GetEncryptionConfiguration"]
        Resource = [var.bucket.arn]
      },
      {
        Sid    = "Logs"
        Effect = "Allow"
        Action = [
          "logs:CreateLogGroup", "logs:CreateLogStream", "logs:GetLogEvents", "logs:GetLogGroupFields",
          "logs:GetLogRecord", "logs:GetQueryResults", "logs:PutLogEvents",
        ]
        Resource = ["${local.arn}:logs:${local.where}:log-group:airflow-${var.network.name}-*"]
      },
      {
        Sid    = "Queue"
        Effect = "Allow"
        Action = [
          "sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:GetQueueUrl",
          "sqs:ReceiveMessage", "sqs:SendMessage",
        ]
        # The queue is in an account of AWS's own.
        Resource = ["${local.arn}:sqs:${data.aws_region.this.region}:*:airflow-celery-*"]
      },
      {
        Sid       = "QueueAndFilesAreEncrypted"
        Effect    = "Allow"
        Action    = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"]
        Resource  = var.bucket.key_arns
        Condition = { StringLike = { "kms:ViaService" = ["sqs.*.amazonaws.com", "s3.*.amazonaws.com"] } }
      },
      {
        Sid      = "AccountWide"
        Effect   = "Allow"
        Action   = ["logs:DescribeLogGroups", "s3:GetAccountPublicAccessBlock"]
        Resource = "*"
      },
      {
        Sid       = "Metrics"
        Effect    = "Allow"
        Action    = ["cloudwatch:PutMetricData"]
        Resource  = "*"
        Condition = { StringEquals = { "cloudwatch:namespace" = "AmazonMWAA" } }
      },
    ]
  })
}

resource "aws_mwaa_environment" "this" {
  count = local.make ? 1 : 0

  name                   = var.network.name
  airflow_version        = var.mwaa.version
  environment_class      = var.mwaa.class
  max_workers            = var.mwaa.max_workers
  execution_role_arn     = aws_iam_role.mwaa[0].arn
  kms_key                = var.bucket.key_arn
  source_bucket_arn      = var.bucket.arn
  dag_s3_path            = "${local.folder}/dags"
  requirements_s3_path   = "${local.folder}/requirements.txt"
  plugins_s3_path        = "${local.folder}/plugins.zip"
  startup_script_s3_path = "${local.folder}/startup.sh"
  webserver_access_mode  = "PRIVATE_ONLY"
  airflow_configuration_options = {
    "secrets.backend"        = "airflow.providers.amazon.aws.secrets.secrets_manager.SecretsManagerBackend"
    "secrets.backend_kwargs" = jsonencode({ connections_prefix = local.prefix, connections_lookup_pattern = "^lowtide_" })
  }

  network_configuration {
    subnet_ids         = slice([for subnet in var.network.subnets : subnet.id], 0, 2)
    security_group_ids = [aws_security_group.mwaa[0].id]
  }

  logging_configuration {
    dag_processing_logs {
      enabled   = true
      log_level = "INFO"
    }

    scheduler_logs {
      enabled   = true
      log_level = "INFO"
    }

    task_logs {
      enabled   = true
      log_level = "INFO"
    }

    webserver_logs {
      enabled   = true
      log_level = "INFO"
    }

    worker_logs {
      enabled   = true
      log_level = "INFO"
    }
  }

  depends_on = [aws_iam_role_policy.mwaa]
}
