{{/* Pod of a manager. Writer and readers differ in role, advertised address and shutdown.
     Called with (dict "root" $ "component" "writer" "values" .Values.writer). */}}
{{- define "flotilla.manager.pod" -}}
{{- $root := .root -}}
metadata:
  {{- include "flotilla.podMetadata" . | nindent 2 }}
spec:
  {{- include "flotilla.podSafety" (dict "root" $root "uid" 10001) | nindent 2 }}
  {{- with include "flotilla.scheduling" . | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  terminationGracePeriodSeconds: 30
  containers:
    - name: manager
      image: {{ include "flotilla.image" $root | quote }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: [python3, -m, flotilla_manager]
      {{- include "flotilla.containerSafety" . | nindent 6 }}
      ports:
        - {name: api, containerPort: 8080}
        - {name: public, containerPort: 8081}
      env:
        {{- include "flotilla.commonEnv" $root | nindent 8 }}
        - name: FLOTILLA_ROLE
          value: {{ .component }}
        - name: FLOTILLA_NAME
          value: $(POD_NAME)
        - name: FLOTILLA_PORT
          value: "8080"
        - name: FLOTILLA_PUBLIC_PORT
          value: "8081"
        {{- if eq .component "writer" }}
        - name: FLOTILLA_URL
          value: {{ include "flotilla.writerUrl" $root }}
        {{- else }}
        - name: FLOTILLA_URL
          value: {{ include "flotilla.scheme" $root }}://$(POD_IP):8080
        - name: FLOTILLA_WRITER
          value: {{ include "flotilla.writerUrl" $root }}
        {{- end }}
        - name: FLOTILLA_DATABASE_FILE
          value: /etc/flotilla/database/url
        - name: FLOTILLA_BROKERS_MIN
          value: {{ min 3 $root.Values.brokers.replicas | quote }}
        {{- with include "flotilla.configEnv" $root.Values.managers.config }}
        {{- trim . | nindent 8 }}
        {{- end }}
        {{- with .values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      startupProbe:
        {{- include "flotilla.probe" (dict "root" $root "path" "/healthz" "port" "api") | nindent 8 }}
        periodSeconds: 2
        timeoutSeconds: 5
        failureThreshold: 60
      livenessProbe:
        {{- include "flotilla.probe" (dict "root" $root "path" "/healthz" "port" "api") | nindent 8 }}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 3
        terminationGracePeriodSeconds: 5 # a process that hangs does not react to SIGTERM
      readinessProbe:
        {{- include "flotilla.probe" (dict "root" $root "path" "/readyz" "port" "api") | nindent 8 }}
        periodSeconds: 3
        timeoutSeconds: 5
        failureThreshold: 2
      {{- if eq .component "reader" }}
      lifecycle:
        preStop: # keep serving until endpoints are updated
          exec:
            command: [sleep, "5"]
      {{- end }}
      resources:
        {{- toYaml .values.resources | nindent 8 }}
      volumeMounts:
        {{- include "flotilla.commonMounts" $root | nindent 8 }}
        - name: database
          mountPath: /etc/flotilla/database
          readOnly: true
  volumes:
    {{- include "flotilla.commonVolumes" $root | nindent 4 }}
    - name: database
      secret:
        secretName: {{ include "flotilla.databaseSecretName" $root }}
        defaultMode: 0440
        items:
          - key: {{ ternary $root.Values.database.existingSecretKey "url" (not (empty $root.Values.database.existingSecret)) }}
            path: url
{{- end -}}
