{{/* Common pod settings. */}}

{{/* No privileges, no token, and no service links: for a Service named `flotilla` they would set FLOTILLA_PORT=tcp://…, which
     servers would read as their setting `port`. Called with (dict "root" $ "uid" 10001), optionally with `account`. Pods that
     use the API of Kubernetes mount a token: see kubernetesVolume. */}}
{{- define "flotilla.podSafety" -}}
serviceAccountName: {{ .account | default (include "flotilla.serviceAccountName" .root) }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ int .uid }}
  runAsGroup: {{ int .uid }}
  fsGroup: {{ int .uid }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{- define "flotilla.containerSafety" -}}
securityContext:
  runAsNonRoot: true
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  privileged: false
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* Scheduling of pods. Called with (dict "root" $ "component" "broker" "values" .Values.brokers). */}}
{{- define "flotilla.scheduling" -}}
{{- with .values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $keys := dict "hosts" "kubernetes.io/hostname" "zones" "topology.kubernetes.io/zone" }}
{{- $constraints := list }}
{{- range $what, $key := $keys }}
{{- $how := dig "spread" $what "Off" $.values }}
{{- if ne $how "Off" }}
{{- $labels := include "flotilla.selector" (dict "root" $.root "component" $.component) | fromYaml }}
{{- $constraint := dict "maxSkew" 1 "topologyKey" $key "whenUnsatisfiable" $how "labelSelector" (dict "matchLabels" $labels) }}
{{- if eq $.component "reader" }}{{/* Count only pods of the current revision. */}}
{{- $_ := set $constraint "matchLabelKeys" (list "pod-template-hash") }}
{{- end }}
{{- $constraints = append $constraints $constraint }}
{{- end }}
{{- end }}
{{- with $constraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of pods, without the version of the chart, and for PostgreSQL without that of Flotilla: a label
     must not restart pods. Called with (dict "root" $ "component" "broker" "values" .Values.brokers), optionally with `annotations`. */}}
{{- define "flotilla.podMetadata" -}}
labels:
  {{- include "flotilla.selector" . | nindent 2 }}
  {{- if ne .component "postgresql" }}
  app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
  {{- end }}
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  app.kubernetes.io/part-of: flotilla
  {{- with .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A setting as text. Helm reads numbers as floats, and 67108864 would become 6.7108864e+07. */}}
{{- define "flotilla.settingText" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end -}}

{{/* Environment variables of settings. */}}
{{- define "flotilla.configEnv" -}}
{{- range $name, $value := . }}
{{- if not (kindIs "invalid" $value) }}
- name: FLOTILLA_{{ upper $name }}
  value: {{ include "flotilla.settingText" $value | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Environment variables of all servers. */}}
{{- define "flotilla.commonEnv" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: FLOTILLA_HOST
  value: "0.0.0.0"
- name: FLOTILLA_AUTH
  value: {{ ternary "on" "off" .Values.auth.enabled | quote }}
- name: FLOTILLA_SECRET_FILE
  value: /etc/flotilla/secret/secret
{{- if .Values.tls.existingSecret }}
- name: FLOTILLA_TLS_CERT
  value: /etc/flotilla/tls/tls.crt
- name: FLOTILLA_TLS_KEY
  value: /etc/flotilla/tls/tls.key
- name: FLOTILLA_TLS_CA
  value: /etc/flotilla/tls/ca.crt
{{- end }}
{{- end -}}

{{- define "flotilla.commonMounts" -}}
- name: tmp
  mountPath: /tmp
- name: secret
  mountPath: /etc/flotilla/secret
  readOnly: true
{{- if .Values.tls.existingSecret }}
- name: tls
  mountPath: /etc/flotilla/tls
  readOnly: true
{{- end }}
{{- end -}}

{{/* Whole directories instead of subPath, so that files follow changes of their Secret. */}}
{{- define "flotilla.commonVolumes" -}}
- name: tmp
  emptyDir: {}
- name: secret
  secret:
    secretName: {{ include "flotilla.secretName" . }}
    defaultMode: 0440
    items:
      - key: {{ ternary .Values.auth.existingSecretKey "secret" (not (empty .Values.auth.existingSecret)) }}
        path: secret
{{- if .Values.tls.existingSecret }}
- name: tls
  secret:
    secretName: {{ .Values.tls.existingSecret }}
    defaultMode: 0440
{{- end }}
{{- end -}}

{{/* HTTP request of a probe. Called with (dict "root" $ "path" "/healthz" "port" "api"). */}}
{{- define "flotilla.probe" -}}
httpGet:
  path: {{ .path }}
  port: {{ .port }}
  scheme: {{ include "flotilla.scheme" .root | upper }}
{{- end -}}

{{/* Volume with the token and the CA of the API of Kubernetes, as Kubernetes itself would mount it. */}}
{{- define "flotilla.kubernetesVolume" -}}
- name: kubernetes
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3607}
      - configMap:
          name: kube-root-ca.crt
          items: [{key: ca.crt, path: ca.crt}]
      - downwardAPI:
          items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]
{{- end -}}
