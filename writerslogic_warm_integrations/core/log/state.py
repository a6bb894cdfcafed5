from warm_integrations.core.log.state import *
