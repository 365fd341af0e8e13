{{/* The pods of a role. Arguments: root, role. */}}
{{- define "hermes.podTemplate" -}}
{{- $root := .root -}}
{{- $role := .role -}}
{{- $values := .root.Values -}}
{{- $own := index $values $role -}}
{{- $pod := mustMergeOverwrite (deepCopy $values.pod) (deepCopy $own.pod) -}}
{{- $config := include "hermes.settings" . | fromJson -}}
{{- $ports := include "hermes.ports" . | fromJson -}}
{{- $status := include "hermes.statusPort" $ports -}}
{{- $scheme := ternary "HTTPS" "HTTP" (hasSuffix "-tls" $status) -}}
{{- $isFrontend := eq $role "frontend" -}}
{{- $drains := and $isFrontend $values.spool.enabled (not $values.standalone.enabled) -}}
{{- $stop := include "hermes.stopSeconds" . | int -}}
{{- if $drains }}{{ $stop = add $stop $values.spool.drainTimeoutSeconds }}{{ end -}}
{{- $hasVolume := and $isFrontend (or $values.spool.enabled $values.standalone.enabled) -}}
metadata:
  labels:
    {{- include "hermes.labels" . | nindent 4 }}
    {{- with $pod.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # A changed configuration restarts the pods.
    checksum/config: {{ include "hermes.config" . | sha256sum }}
    {{- with $pod.annotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "hermes.serviceAccountName" $root }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ max $own.terminationGracePeriodSeconds $stop }}
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $pod.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $pod.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $pod.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $pod.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    {{- if $pod.topologySpreadConstraints }}
    {{- toYaml $pod.topologySpreadConstraints | nindent 4 }}
    {{- else }}
    {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - topologyKey: {{ . }}
      maxSkew: 1
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "hermes.selector" (dict "root" $root "role" $role) | nindent 10 }}
    {{- end }}
    {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: { type: RuntimeDefault }
  containers:
    - name: hermes
      image: {{ include "hermes.image" $root | quote }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      args: [node, --config, /etc/hermes/node.toml]
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        runAsNonRoot: true
        capabilities: { drop: [ALL] }
      env:
        - name: HERMES_NODE
          valueFrom: { fieldRef: { fieldPath: metadata.name } }
        {{- if has "frontend" $config.roles }}
        - name: HERMES_FRONTEND_MEMORY_HOST
          valueFrom: { fieldRef: { fieldPath: status.podIP } }
        {{- end }}
        {{- if has "consumers" $config.roles }}
        - name: HERMES_CONSUMERS_PULL_HOST
          valueFrom: { fieldRef: { fieldPath: status.podIP } }
        {{- end }}
        {{- with $pod.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $pod.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        {{- range $name, $port := $ports }}
        - { name: {{ $name }}, containerPort: {{ $port }} }
        {{- end }}
      # Also waits for Kafka.
      startupProbe:
        httpGet: { path: /startupz, port: {{ $status }}, scheme: {{ $scheme }} }
        periodSeconds: 5
        failureThreshold: 120
      livenessProbe:
        httpGet: { path: /livez, port: {{ $status }}, scheme: {{ $scheme }} }
        periodSeconds: 10
        timeoutSeconds: 5
      readinessProbe:
        httpGet: { path: /readyz, port: {{ $status }}, scheme: {{ $scheme }} }
        periodSeconds: 5
        timeoutSeconds: 3
      {{- if $drains }}
      lifecycle:
        preStop:
          exec:
            # Reports what it could not send as an event of the pod; it stays on the volume.
            command: [hermes, spool, drain, --wait, --timeout-s, {{ $values.spool.drainTimeoutSeconds | quote }}, --config, /etc/hermes/node.toml]
      {{- else if eq $role "management" }}
      lifecycle:
        preStop:
          # Until the Service has noticed that the pod is going away.
          sleep: { seconds: 5 }
      {{- end }}
      resources:
        {{- toYaml $own.resources | nindent 8 }}
      volumeMounts:
        # By subPath, because the folder has other mounts; a change restarts the pods anyway.
        - { name: config, mountPath: /etc/hermes/node.toml, subPath: node.toml, readOnly: true }
        - { name: tmp, mountPath: /tmp }
        {{- if $hasVolume }}
        - { name: data, mountPath: /var/lib/hermes }
        {{- end }}
        {{- range $listener := list "frontend" "management" }}
        {{- if and (has $listener $config.roles) (index $values.tls $listener).enabled }}
        - { name: tls-{{ $listener }}, mountPath: /etc/hermes/tls/{{ $listener }}, readOnly: true }
        {{- end }}
        {{- end }}
        {{- range $name, $_ := $values.secrets }}
        - { name: secret-{{ $name }}, mountPath: /etc/hermes/secrets/{{ $name }}, readOnly: true }
        {{- end }}
        {{- with $pod.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: config
      configMap: { name: {{ include "hermes.fullname" $root }}-{{ $role }} }
    - name: tmp
      emptyDir: { sizeLimit: 64Mi }
    {{- range $listener := list "frontend" "management" }}
    {{- if and (has $listener $config.roles) (index $values.tls $listener).enabled }}
    - name: tls-{{ $listener }}
      secret: { secretName: {{ include "hermes.tlsSecretName" (dict "root" $root "role" $listener) }}, defaultMode: 0440 }
    {{- end }}
    {{- end }}
    {{- range $name, $secret := $values.secrets }}
    - name: secret-{{ $name }}
      secret: { secretName: {{ $secret }}, defaultMode: 0440 }
    {{- end }}
    {{- with $pod.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* How long a role's nodes need to stop after SIGTERM (docs/deployment.md). Arguments: root, role. */}}
{{- define "hermes.stopSeconds" -}}
{{- $config := include "hermes.settings" . | fromJson -}}
{{- $stop := 10 -}}
{{- if has "frontend" $config.roles -}}
{{- $wait := dig "graceful_shutdown_initial_wait_ms" 10000 $config.frontend -}}
{{- $drain := dig "graceful_shutdown_drain_ms" 20000 $config.frontend -}}
{{- $stop = add $stop 20 (div (add $wait $drain) 1000) -}}
{{- end -}}
{{- if has "consumers" $config.roles -}}
{{- $stop = add $stop 10 (div (dig "stop_grace_ms" 5000 $config.consumers) 1000) -}}
{{- end -}}
{{- $stop -}}
{{- end -}}
