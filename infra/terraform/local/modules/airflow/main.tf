# Airflow in one place: API server, scheduler, DAG processor and triggerer, with a database of their own.

locals {
  connection = jsonencode({
    conn_type = "lowtide"
    host      = var.connection.zookeeper
    password  = var.connection.token
    extra = {
      snapshots_url      = var.connection.url
      s3_endpoint        = var.connection.endpoint
      zookeeper_password = var.connection.zookeeper_auth
    }
  })
}

resource "hosts_secret" "admin" {
  name = "Airflow's administrator"
}

resource "hosts_secret" "jwt" {
  name = "the key of Airflow's tokens"
}

locals {
  airflow = ["/opt/airflow/environment/bin/python", "-m", "airflow"]
  environment = {
    PATH                         = "/opt/airflow/environment/bin:/usr/local/bin:/usr/bin:/bin"
    AIRFLOW_HOME                 = "/home/airflow"
    AIRFLOW_CONN_LOWTIDE_DEFAULT = local.connection
    LOWTIDE_AIRFLOW_CONF         = "/home/airflow/jobs.toml"
    AWS_SHARED_CREDENTIALS_FILE  = "/home/airflow/aws/credentials"
    AWS_CA_BUNDLE                = "/home/airflow/aws/ca.pem"
    AWS_EC2_METADATA_DISABLED    = "true"

    AIRFLOW__CORE__DAGS_FOLDER                        = "/opt/airflow/dags"
    AIRFLOW__DATABASE__SQL_ALCHEMY_CONN               = "sqlite:////home/airflow/airflow.db?timeout=30"
    AIRFLOW__CORE__LOAD_EXAMPLES                      = "False"
    AIRFLOW__CORE__PARALLELISM                        = "2"
    AIRFLOW__CORE__HOSTNAME_CALLABLE                  = "socket.gethostname"
    AIRFLOW__CORE__EXECUTION_API_SERVER_URL           = "http://${var.host}:8080/execution/"
    AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS          = "admin:admin"
    AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE = "/home/airflow/passwords.json"
    AIRFLOW__API__WORKERS                             = "1"
    AIRFLOW__API__BASE_URL                            = "http://${var.host}:8080"
    AIRFLOW__API_AUTH__JWT_SECRET                     = hosts_secret.jwt.hex
    # The API of tasks prepares itself at its first request, for seconds; a task that does not wait for it fails.
    AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT   = "60"
    AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES = "1"
    # The DAG files do not change; reading them all again costs as much as a task.
    AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL = "600"
    AIRFLOW__USAGE_DATA_COLLECTION__ENABLED           = "False"
  }
}

resource "hosts_program" "api_server" {
  network     = var.network.name
  host        = var.host
  boot        = var.network.hosts[var.host].boot
  name        = "airflow"
  command     = concat(local.airflow, ["api-server"])
  environment = local.environment
  files = {
    "jobs.toml"       = var.jobs
    "passwords.json"  = jsonencode({ admin = hosts_secret.admin.hex })
    "aws/credentials" = var.store.credentials
    "aws/ca.pem"      = var.store.authority
  }
  # Readers of the database and its writer do not wait for each other.
  prepare = join(" && ", [
    "${join(" ", local.airflow)} db migrate",
    "${local.airflow[0]} -c \"import sqlite3; sqlite3.connect('airflow.db').execute('PRAGMA journal_mode=WAL')\"",
  ])
  port          = 8080
  start_limit_s = 240
  stop_limit_s  = 3
}

# The API server reads tasks' log files itself, so none of these has to serve them.
resource "hosts_program" "this" {
  for_each = {
    scheduler     = ["--skip-serve-logs"]
    dag-processor = []
    triggerer     = ["--skip-serve-logs"]
  }

  network      = var.network.name
  host         = var.host
  boot         = var.network.hosts[var.host].boot
  name         = each.key
  command      = concat(local.airflow, [each.key], each.value)
  environment  = local.environment
  stop_limit_s = 3

  depends_on = [hosts_program.api_server]
}
