{{- define "flotilla.broker.pod" -}}
{{- $values := .Values.brokers -}}
{{- $part := dict "root" $ "component" "broker" "values" $values -}}
metadata:
  {{- include "flotilla.podMetadata" $part | nindent 2 }}
spec:
  {{- include "flotilla.podSafety" (dict "root" $ "uid" 10001) | nindent 2 }}
  {{- with include "flotilla.scheduling" $part | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  terminationGracePeriodSeconds: {{ int $values.terminationGracePeriodSeconds }}
  containers:
    - name: broker
      image: {{ include "flotilla.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [python3, -m, flotilla_broker]
      {{- include "flotilla.containerSafety" . | nindent 6 }}
      ports:
        - {name: client, containerPort: 8090}
        - {name: peer, containerPort: 8091}
      env:
        {{- include "flotilla.commonEnv" . | nindent 8 }}
        - name: FLOTILLA_DATA # a folder inside the volume, which may have a lost+found
          value: /var/lib/flotilla/data
        - name: FLOTILLA_PORT
          value: "8090"
        - name: FLOTILLA_PEER_HOST
          value: "0.0.0.0"
        - name: FLOTILLA_PEER_PORT
          value: "8091"
        - name: FLOTILLA_ADVERTISE_HOST
          value: $(POD_NAME).{{ include "flotilla.fullname" . }}-broker.$(POD_NAMESPACE).svc
        - name: FLOTILLA_MANAGERS
          value: {{ include "flotilla.writerUrl" . }},{{ include "flotilla.readerUrl" . }}
        {{- with $values.rackLabel }}
        - name: FLOTILLA_RACK
          valueFrom: {fieldRef: {fieldPath: "metadata.labels['{{ . }}']"}}
        {{- end }}
        {{- if and .Values.tls.existingSecret .Values.tls.peers }}
        - name: FLOTILLA_PEER_CERT
          value: /etc/flotilla/tls/tls.crt
        - name: FLOTILLA_PEER_KEY
          value: /etc/flotilla/tls/tls.key
        - name: FLOTILLA_PEER_CA
          value: /etc/flotilla/tls/ca.crt
        {{- end }}
        {{- with include "flotilla.configEnv" $values.config }}
        {{- trim . | nindent 8 }}
        {{- end }}
        {{- with $values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      startupProbe: # a long log takes its time to be read; half an hour is more than any disk needs
        {{- include "flotilla.probe" (dict "root" $ "path" "/healthz" "port" "client") | nindent 8 }}
        periodSeconds: 2
        timeoutSeconds: 5
        failureThreshold: 900
      livenessProbe: # finds a loop that does not turn, and nothing else
        {{- include "flotilla.probe" (dict "root" $ "path" "/healthz" "port" "client") | nindent 8 }}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 3
        terminationGracePeriodSeconds: 5 # one that hangs does not hear that it should end
      readinessProbe:
        {{- include "flotilla.probe" (dict "root" $ "path" "/readyz" "port" "client") | nindent 8 }}
        periodSeconds: 3
        timeoutSeconds: 5
        failureThreshold: 2
      resources:
        {{- toYaml $values.resources | nindent 8 }}
      volumeMounts:
        {{- include "flotilla.commonMounts" . | nindent 8 }}
        - name: data
          mountPath: /var/lib/flotilla
  volumes:
    {{- include "flotilla.commonVolumes" . | nindent 4 }}
{{- end -}}
