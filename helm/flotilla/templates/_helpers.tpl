{{/* Names and labels. Common pod settings are in _pods.tpl. */}}

{{- define "flotilla.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 40 characters: with `-postgresql` and a revision appended, it is the value of a pod label, at most 63. */}}
{{- define "flotilla.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Selector labels, which are immutable. Called with (dict "root" $ "component" "broker"). */}}
{{- define "flotilla.selector" -}}
app.kubernetes.io/name: {{ include "flotilla.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{- define "flotilla.labels" -}}
{{ include "flotilla.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: flotilla
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "flotilla.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "flotilla.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "flotilla.image" -}}
{{- with .Values.image -}}
{{- with .registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- .repository -}}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "flotilla.sparkImage" -}}
{{- with .Values.spark.image -}}
{{- with .registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- .repository -}}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "flotilla.secretName" -}}
{{- default (printf "%s-secret" (include "flotilla.fullname" .)) .Values.auth.existingSecret -}}
{{- end -}}

{{/* "true" if the chart installs PostgreSQL. */}}
{{- define "flotilla.hasPostgresql" -}}
{{- if not .Values.database.existingSecret }}true{{ end -}}
{{- end -}}

{{- define "flotilla.databaseSecretName" -}}
{{- $own := printf "%s-database" (include "flotilla.fullname" .) -}}
{{- coalesce .Values.database.existingSecret .Values.postgresql.existingSecret $own -}}
{{- end -}}

{{- define "flotilla.scheme" -}}
{{- ternary "https" "http" (not (empty .Values.tls.existingSecret)) -}}
{{- end -}}

{{/* Internal URLs of the managers, with the control API, for brokers and managers. */}}
{{- define "flotilla.writerUrl" -}}
{{ include "flotilla.scheme" . }}://{{ include "flotilla.fullname" . }}-writer.{{ .Release.Namespace }}.svc:8080
{{- end -}}

{{- define "flotilla.readerUrl" -}}
{{ include "flotilla.scheme" . }}://{{ include "flotilla.fullname" . }}-reader.{{ .Release.Namespace }}.svc:8080
{{- end -}}

{{/* URL for programs in the cluster. Port 80 is the public port, also with TLS. */}}
{{- define "flotilla.publicUrl" -}}
{{ include "flotilla.scheme" . }}://{{ include "flotilla.fullname" . }}.{{ .Release.Namespace }}.svc:80
{{- end -}}

{{/* "true" if there is always more than one reader. */}}
{{- define "flotilla.hasSpareReader" -}}
{{- $least := ternary .Values.readers.autoscaling.minReplicas .Values.readers.replicas .Values.readers.autoscaling.enabled -}}
{{- if gt (int $least) 1 }}true{{ end -}}
{{- end -}}
