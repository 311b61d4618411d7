{{/* A hook Job that uses the API of Kubernetes, with a service account and a role that exist only for the hook.
     Called with (dict "root" $ "name" "upgrade" "hook" "pre-upgrade" "args" (list …)). */}}
{{- define "flotilla.hook.annotations" -}}
helm.sh/hook: {{ .hook }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{- define "flotilla.hook.account" -}}
{{- $full := printf "%s-%s" (include "flotilla.fullname" .root) .name -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $full }}
  labels:
    {{- include "flotilla.labels" (dict "root" .root "component" "hook") | nindent 4 }}
  annotations:
    {{- include "flotilla.hook.annotations" (dict "hook" .hook "weight" "-20") | nindent 4 }}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $full }}
  labels:
    {{- include "flotilla.labels" (dict "root" .root "component" "hook") | nindent 4 }}
  annotations:
    {{- include "flotilla.hook.annotations" (dict "hook" .hook "weight" "-10") | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $full }}}
subjects:
  - {kind: ServiceAccount, name: {{ $full }}, namespace: {{ .root.Release.Namespace }}}
{{- end -}}

{{- define "flotilla.hook.job" -}}
{{- $full := printf "%s-%s" (include "flotilla.fullname" .root) .name -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $full }}
  labels:
    {{- include "flotilla.labels" (dict "root" .root "component" "hook") | nindent 4 }}
  annotations:
    {{- include "flotilla.hook.annotations" (dict "hook" .hook "weight" "0") | nindent 4 }}
spec:
  backoffLimit: 3
  activeDeadlineSeconds: 300
  template:
    metadata:
      labels:
        {{- include "flotilla.selector" (dict "root" .root "component" "hook") | nindent 8 }}
    spec:
      {{- include "flotilla.podSafety" (dict "root" .root "uid" 10001 "account" $full) | nindent 6 }}
      {{- with include "flotilla.scheduling" (dict "root" .root "component" "hook" "values" .root.Values.operator) | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      restartPolicy: Never
      containers:
        - name: {{ .name }}
          image: {{ include "flotilla.image" .root | quote }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args:
            {{- toYaml (concat (list "python3" "-m" "flotilla_operator.prepare" "--namespace" .root.Release.Namespace) .args) | nindent 12 }}
          {{- include "flotilla.containerSafety" .root | nindent 10 }}
          resources:
            {{- toYaml .root.Values.operator.resources | nindent 12 }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            - {name: kubernetes, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
            {{- if .files }}
            - {name: files, mountPath: /files, readOnly: true}
            {{- end }}
      volumes:
        - name: tmp
          emptyDir: {}
        {{- include "flotilla.kubernetesVolume" .root | nindent 8 }}
        {{- if .files }}
        - name: files
          configMap:
            name: {{ $full }}
        {{- end }}
{{- end -}}
