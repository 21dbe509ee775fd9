# A standalone master and workers. Spark's connections are authenticated and encrypted, Real-Time Mode's shuffle authenticated alone.

locals {
  defaults = <<-EOT
    spark.authenticate true
    spark.authenticate.secret ${hosts_secret.this.hex}
    spark.network.crypto.enabled true
    spark.io.encryption.enabled true
  EOT
  environment = {
    JAVA_HOME              = "/opt/java"
    SPARK_HOME             = "/opt/spark"
    SPARK_CONF_DIR         = "/home/spark/conf"
    SPARK_NO_DAEMONIZE     = "1"
    SPARK_DAEMON_MEMORY    = "256m"
    SPARK_DAEMON_JAVA_OPTS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
  }
  # Programs on these hosts find the object store by themselves, as machines with a role of their own would.
  store = {
    AWS_SHARED_CREDENTIALS_FILE = "/home/spark/aws/credentials"
    AWS_CA_BUNDLE               = "/home/spark/aws/ca.pem"
    AWS_EC2_METADATA_DISABLED   = "true"
  }
}

resource "hosts_secret" "this" {
  name = "Spark's"
}

resource "hosts_program" "master" {
  network     = var.network.name
  host        = var.master
  boot        = var.network.hosts[var.master].boot
  name        = "spark"
  command     = ["/opt/spark/bin/spark-class", "org.apache.spark.deploy.master.Master", "--host", var.master, "--port", "7077", "--webui-port", "8080"]
  environment = local.environment
  files       = { "conf/spark-defaults.conf" = local.defaults }
  port        = 7077
}

resource "hosts_program" "worker" {
  for_each = toset(var.workers)

  network = var.network.name
  host    = each.key
  boot    = var.network.hosts[each.key].boot
  name    = "spark"
  command = [
    "/opt/spark/bin/spark-class", "org.apache.spark.deploy.worker.Worker", "--host", each.key, "--port", "7078",
    "--webui-port", "8081", "--cores", tostring(var.cores), "--memory", "3g", "--work-dir", "/home/spark/work",
    "spark://${var.master}:7077",
  ]
  environment = merge(local.environment, local.store, { SPARK_LOCAL_DIRS = "/tmp" })
  files = {
    "conf/spark-defaults.conf" = local.defaults
    "aws/credentials"          = var.store.credentials
    "aws/ca.pem"               = var.store.authority
  }
  port = 8081

  depends_on = [hosts_program.master]
}
