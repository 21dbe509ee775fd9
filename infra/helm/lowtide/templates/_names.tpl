{{- define "lowtide.account" -}}
{{ .Values.serviceAccount.name | default .Release.Name }}
{{- end }}

{{- define "lowtide.labels" -}}
app.kubernetes.io/name: lowtide
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* What driver and executors have alike. */}}
{{- define "lowtide.pod" -}}
serviceAccount: {{ include "lowtide.account" . }}
labels:
  {{- include "lowtide.labels" . | nindent 2 }}
podSecurityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
securityContext:
  allowPrivilegeEscalation: false
  capabilities:
    drop: [ALL]
{{- with .Values.env }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - name: conf
    mountPath: /etc/lowtide
    readOnly: true
  - name: work
    mountPath: /var/lib/lowtide
  {{- if .Values.secret }}
  - name: secret
    mountPath: /run/secrets/lowtide
    readOnly: true
  {{- end }}
{{- end }}
